#include "pipeline/token_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvserve {
namespace {

// What a share that is a little too large for its decimal digits must not round up to.
constexpr double kSlack = 1e-9;

// kept[i] = whether token `tokens.begin + i` is among the chosen.
void Choose(const TokenChoice& choice, TokenRange tokens, std::span<double> scores,
            std::span<bool> kept, Arena& arena) {
  std::size_t always = 0;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    kept[i] = choice.always(tokens.begin + i);
    always += kept[i] ? 1 : 0;
    if (std::isnan(scores[i])) scores[i] = -1.0;
  }
  const auto wanted =
      static_cast<std::size_t>(std::max(0.0, std::ceil(choice.keep * tokens.size() - kSlack)));
  const std::size_t count = std::min(scores.size(), std::max(always, wanted));
  const auto order = arena.Take<std::uint32_t>(tokens.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto better = [&](std::uint32_t a, std::uint32_t b) {
    if (kept[a] != kept[b]) return static_cast<bool>(kept[a]);
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  };
  if (count < order.size()) {
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                     better);
  }
  std::fill(kept.begin(), kept.end(), false);
  for (const std::uint32_t i : order.first(count)) kept[i] = true;
}

// One choice for the frame, [token of the frame].
std::span<const bool> ChooseForFrame(const TokenChoice& choice, const FrameContext& frame,
                                     const ConstKvView& view,
                                     std::span<const std::span<const float>> scores) {
  const auto sums = frame.arena->TakeZeroed<double>(view.tokens.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::size_t offset = view.layers[i].tokens.begin - view.tokens.begin;
    for (std::size_t t = 0; t < scores[i].size(); ++t) sums[offset + t] += scores[i][t];
  }
  const auto kept = frame.arena->Take<bool>(sums.size());
  Choose(choice, view.tokens, sums, kept, *frame.arena);
  return kept;
}

std::span<const bool> ChooseForLayer(const TokenChoice& choice, const FrameContext& frame,
                                     TokenRange tokens, std::span<const float> scores) {
  const auto values = frame.arena->Take<double>(scores.size());
  std::copy(scores.begin(), scores.end(), values.begin());
  const auto kept = frame.arena->Take<bool>(scores.size());
  Choose(choice, tokens, values, kept, *frame.arena);
  return kept;
}

// Far below every class of weights. Less would round to 0 in float32, which drops.
constexpr double kLeastOutside = 0x1p-20;

}  // namespace

float OutsideWeight(const Settings& settings) {
  const double outside = settings.value(kOutsideId);
  return outside == 0.0 ? 0.0F : static_cast<float>(std::max(outside, kLeastOutside));
}

TokenChoice TokenChoice::From(const Settings& settings, const FrameContext& frame) {
  return {.keep = settings.value(kKeepId),
          .sinks = settings.integer(kSinksId),
          .kept_from = RecentBegin(frame, settings.integer(kRecentId)),
          .outside = OutsideWeight(settings),
          .per_layer = settings.integer(kScopeId) != 0};
}

bool TokenChoice::MayDrop(const Settings& settings) {
  return settings.value(kOutsideId) == 0.0 && settings.value(kKeepId) < 1.0;
}

std::uint32_t RecentBegin(const FrameContext& frame, std::uint32_t recent) {
  const std::uint32_t end = frame.prompt_tokens > 0 ? frame.prompt_tokens : frame.tokens.end;
  return end - std::min(end, recent);
}

void WeighByChoice(const TokenChoice& choice, const FrameContext& frame, const ConstKvView& view,
                   std::span<const std::span<const float>> scores,
                   std::span<std::vector<float>> weights) {
  if (choice.keep >= 1.0) return;
  std::span<const bool> of_frame;
  if (!choice.per_layer) of_frame = ChooseForFrame(choice, frame, view, scores);
  std::size_t plane = 0;
  for (std::size_t i = 0; i < view.layers.size(); ++i) {
    const TokenRange tokens = view.layers[i].tokens;
    const std::size_t planes = view.geometry->layers[view.layers[i].layer].single_plane() ? 1 : 2;
    const auto kept = choice.per_layer
                          ? ChooseForLayer(choice, frame, tokens, scores[i])
                          : of_frame.subspan(tokens.empty() ? 0 : tokens.begin - view.tokens.begin,
                                             tokens.size());
    for (const std::size_t end = plane + planes; plane < end; ++plane) {
      for (std::size_t t = 0; t < kept.size(); ++t) {
        if (!kept[t]) weights[plane][t] *= choice.outside;
      }
    }
  }
}

}  // namespace kvserve
