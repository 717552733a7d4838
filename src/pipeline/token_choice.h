// Which tokens of a frame a selector keeps as they are, and what that makes of the weights.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "pipeline/stage.h"

namespace kvserve {

// Parameters that selectors have in common, ids 1..5 (`window` has no keep and no scope).
inline constexpr std::uint8_t kSinksId = 1;
inline constexpr std::uint8_t kRecentId = 2;
inline constexpr std::uint8_t kOutsideId = 3;
inline constexpr std::uint8_t kKeepId = 4;
inline constexpr std::uint8_t kScopeId = 5;

[[nodiscard]] constexpr ParameterInfo SinksParameter() {
  return {.id = kSinksId,
          .name = "sinks",
          .type = ParameterType::kInteger,
          .low = 0,
          .high = 65536,
          .default_k = 4,
          .unit = "tokens",
          .help = "first tokens of the request, always kept"};
}
[[nodiscard]] constexpr ParameterInfo RecentParameter(double tokens) {
  return {.id = kRecentId,
          .name = "recent",
          .type = ParameterType::kInteger,
          .low = 0,
          .high = kMaxTokens,
          .default_k = tokens,
          .unit = "tokens",
          .help = "last tokens of the prompt (of the frame if its length is unknown), always kept"};
}
[[nodiscard]] constexpr ParameterInfo OutsideParameter() {
  return {.id = kOutsideId,
          .name = "outside",
          .type = ParameterType::kReal,
          .low = 0,
          .high = 1,
          .default_k = 0.0625,
          .help = "weight of tokens that are not kept; 0 drops them"};
}
[[nodiscard]] constexpr ParameterInfo KeepParameter(double share) {
  return {.id = kKeepId,
          .name = "keep",
          .type = ParameterType::kReal,
          .low = 0,
          .high = 1,
          .default_k = share,
          .help = "share of tokens to keep, those always kept included"};
}
inline constexpr std::string_view kScopes[] = {"request", "layer"};
[[nodiscard]] constexpr ParameterInfo ScopeParameter() {
  return {.id = kScopeId,
          .name = "scope",
          .type = ParameterType::kChoice,
          .low = 0,
          .high = 1,
          .default_k = 0,
          .help = "all layers keep the same tokens, or each layer its own",
          .choices = kScopes};
}

// The weight of tokens that are not kept: `outside`, of which only 0 drops them.
[[nodiscard]] float OutsideWeight(const Settings& settings);

struct TokenChoice {
  double keep = 1.0;                     // share of the tokens, 0..1
  std::uint32_t sinks = 0;               // tokens before it are kept whatever their score
  std::uint32_t kept_from = kMaxTokens;  // and so are those from here on
  float outside = 1.0F;                  // weight of the others
  bool per_layer = false;

  // Of a selector with all five parameters.
  [[nodiscard]] static TokenChoice From(const Settings& settings, const FrameContext& frame);
  [[nodiscard]] static bool MayDrop(const Settings& settings);
  [[nodiscard]] bool always(std::uint32_t token) const {
    return token < sinks || token >= kept_from;
  }
};

// First of the last `recent` tokens of the prompt, or of the frame while the prompt's length is not
// known.
[[nodiscard]] std::uint32_t RecentBegin(const FrameContext& frame, std::uint32_t recent);

// Chooses ceil(keep * tokens) tokens, of the whole frame or of each layer: those that are always
// kept (even if they are more), then by falling score, the earlier one of equals. With one choice
// for the frame a token's score is the sum over the layers that hold it. Multiplies the weights of
// all planes of the other tokens by `outside`. scores[i] is [token] of view.layers[i]; NaN ranks
// last. weights[p] is [token] of plane p in coding order. Scratch comes from frame.arena.
void WeighByChoice(const TokenChoice& choice, const FrameContext& frame, const ConstKvView& view,
                   std::span<const std::span<const float>> scores,
                   std::span<std::vector<float>> weights);

// Calls score(i, scores[i], scratch arena), which gives a Status, for every layer of the view that
// holds tokens, on frame.workers; scores start at 0. The result is in frame.arena.
template <typename Score>
[[nodiscard]] Result<std::span<const std::span<const float>>> ScoreLayers(const FrameContext& frame,
                                                                          const ConstKvView& view,
                                                                          const Score& score) {
  const auto scores = frame.arena->Take<std::span<float>>(view.layers.size());
  const auto read = frame.arena->Take<std::span<const float>>(view.layers.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    read[i] = scores[i] = frame.arena->TakeZeroed<float>(view.layers[i].tokens.size());
  }
  const Status done = frame.workers->Run(scores.size(), [&](std::size_t i, Arena& scratch) {
    return scores[i].empty() ? Status() : Status(score(i, scores[i], scratch));
  });
  if (!done) return tl::unexpected(done.error());
  return std::span<const std::span<const float>>(read);
}

}  // namespace kvserve
