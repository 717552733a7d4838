// Weights by expected attention (pipeline/expected_attention.h): over the frame's keys, or over all
// that the request has shown so far, which SelectorMemory remembers. Tokens are ranked by the sum
// of p |v|, of which each layer has one unit.
#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "pipeline/attention_levels.h"
#include "pipeline/expected_attention.h"
#include "pipeline/token_choice.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kBeta = 6;  // and 7 for V
constexpr std::uint8_t kLeast = 8;
constexpr std::uint8_t kMost = 9;
constexpr std::uint8_t kHorizon = 10;
constexpr std::uint8_t kKeys = 11;
constexpr std::uint8_t kMean = 12;
constexpr std::uint8_t kRecency = 13;

constexpr std::string_view kKeyChoices[] = {"frame", "seen"};
constexpr std::string_view kMeanChoices[] = {"frame", "offline"};

constexpr ParameterInfo kParameters[] = {
    SinksParameter(),
    RecentParameter(32),
    OutsideParameter(),
    KeepParameter(1.0),
    ScopeParameter(),
    {.id = kBeta,
     .name = "beta",
     .type = ParameterType::kReal,
     .low = 0,
     .high = 2,
     .default_k = 0.25,
     .default_v = 0.5,
     .per_plane = true,
     .help = "power of the relative sensitivity that a weight is; 0: all weigh 1"},
    {.id = kLeast,
     .name = "least",
     .type = ParameterType::kReal,
     .low = 0.015625,
     .high = 1,
     .default_k = 0.5,
     .help = "lowest weight by sensitivity"},
    {.id = kMost,
     .name = "most",
     .type = ParameterType::kReal,
     .low = 1,
     .high = 64,
     .default_k = 64,
     .help = "highest weight by sensitivity"},
    {.id = kHorizon,
     .name = "horizon",
     .type = ParameterType::kInteger,
     .low = 1,
     .high = 65536,
     .default_k = 384,
     .unit = "tokens",
     .help = "how far beyond the prompt's end queries are expected"},
    {.id = kKeys,
     .name = "keys",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .default_k = 0,
     .help = "softmax over the frame's keys, or over all of the request that were seen",
     .choices = kKeyChoices,
     .since = 2},
    {.id = kMean,
     .name = "mean",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .default_k = 0,
     .help = "weights are relative to the frame's mean, or to the artefact's",
     .choices = kMeanChoices,
     .since = 2},
    {.id = kRecency,
     .name = "recency",
     .type = ParameterType::kReal,
     .low = 0,
     .high = 4,
     .default_k = 0,
     .help = "how much of its place in the prompt a frame's mean has, by the artefact's profile",
     .since = 2},
};

constexpr StageInfo kInfo = {
    .id = 0x0103,
    .name = "expected",
    .version = 2,
    .kind = StageKind::kSelector,
    .parameters = kParameters,
    .summary = "weights by expected attention from calibrated query statistics",
    .oldest_version = 1,
};

// In place of no sensitivity at all, whose logarithm would be the mean's ruin.
constexpr double kTiny = 1e-30;
constexpr double kOctaves = 6;  // that weights span each way

// The runs of keys of a request, [layer of the model].
struct ExpectedMemory : SelectorMemory {
  std::vector<std::vector<SeenKeys>> layers;
};

// What the weighing of a layer needs to know.
struct LayerPlace {
  const RotationAverages* ahead = nullptr;
  double queries_from = 0;                // position
  std::vector<SeenKeys>* runs = nullptr;  // null: none are kept
};

double LogSensitivity(float sensitivity) {
  return std::log2(std::max(double{sensitivity}, kTiny));
}

class Expected : public Selector {
 public:
  explicit Expected(const Settings& settings)
      : settings_(settings),
        seen_(settings.integer(kKeys) == 1),
        offline_(settings.integer(kMean) == 1),
        recency_(settings.value(kRecency)) {}

  Status Weigh(const FrameContext& frame, const ConstKvView& view, SelectorMemory* memory,
               std::span<std::vector<float>> weights) const override {
    KVSERVE_ASSIGN(const auto places, Places(frame, view, memory));
    const auto first_plane = frame.arena->Take<std::size_t>(view.layers.size());
    std::size_t planes = 0;
    for (std::size_t i = 0; i < view.layers.size(); ++i) {
      KVSERVE_TRY(CheckLayer(frame, view.layers[i]));
      first_plane[i] = planes;
      planes += view.geometry->layers[view.layers[i].layer].single_plane() ? 1 : 2;
    }
    const TokenChoice choice = TokenChoice::From(settings_, frame);
    const auto ranks = ScoreLayers(frame, view, [&](std::size_t i, auto rank, Arena& scratch) {
      const std::size_t end = i + 1 < view.layers.size() ? first_plane[i + 1] : planes;
      return WeighLayer(frame, view.layers[i], choice, places[i], rank,
                        weights.subspan(first_plane[i], end - first_plane[i]), scratch);
    });
    if (!ranks) return tl::unexpected(ranks.error());
    WeighByChoice(choice, frame, view, *ranks, weights);
    return {};
  }
  [[nodiscard]] std::unique_ptr<SelectorMemory> NewMemory() const override {
    return seen_ ? std::make_unique<ExpectedMemory>() : nullptr;
  }
  [[nodiscard]] bool needs_artefact() const override { return true; }
  [[nodiscard]] bool may_drop() const override { return TokenChoice::MayDrop(settings_); }

 private:
  // [layer of the view]; layers with the same RoPE share its averages.
  [[nodiscard]] Result<std::span<LayerPlace>> Places(const FrameContext& frame,
                                                     const ConstKvView& view,
                                                     SelectorMemory* memory) const {
    auto* const kept = dynamic_cast<ExpectedMemory*>(memory);
    if (seen_ && memory != nullptr && kept == nullptr) {
      return MakeError(ErrorCode::kInvalidArgument, "expected: the memory is another selector's");
    }
    if (kept != nullptr) kept->layers.resize(view.geometry->layers.size());
    const auto places = frame.arena->Take<LayerPlace>(view.layers.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      const LayerGeometry& own = view.geometry->layers[view.layers[i].layer];
      places[i].queries_from = QueriesFrom(frame);
      places[i].runs = kept == nullptr ? nullptr : &kept->layers[view.layers[i].layer];
      std::size_t same = 0;
      for (; same < i; ++same) {
        const LayerGeometry& other = view.geometry->layers[view.layers[same].layer];
        if (other.rope_style == own.rope_style && other.rope_theta == own.rope_theta &&
            other.k_dim == own.k_dim) {
          break;
        }
      }
      places[i].ahead =
          same < i ? places[same].ahead
                   : frame.arena->New<RotationAverages>(QueriesAhead(
                         own, places[i].queries_from, settings_.value(kHorizon), *frame.arena));
    }
    return places;
  }

  // The prompt's end, or the frame's if that is all that is known.
  static double QueriesFrom(const FrameContext& frame) {
    return frame.prompt_tokens > 0 ? frame.prompt_tokens : frame.tokens.end;
  }

  Status CheckLayer(const FrameContext& frame, const ConstLayerView& layer) const {
    KVSERVE_TRY(CheckQueryStatistics(frame.artefact, layer));
    if (!offline_ && recency_ == 0) return {};
    const bool single = frame.geometry->layers[layer.layer].single_plane();
    if (frame.artefact->attention(layer.layer, PlaneKind::kKey) != nullptr &&
        (single || frame.artefact->attention(layer.layer, PlaneKind::kValue) != nullptr)) {
      return {};
    }
    return MakeError(ErrorCode::kMismatch,
                     "the calibration artefact has no attention profile for layer " +
                         std::to_string(layer.layer) + ", which mean=offline and recency need");
  }

  Status WeighLayer(const FrameContext& frame, const ConstLayerView& layer,
                    const TokenChoice& choice, const LayerPlace& place, std::span<float> rank,
                    std::span<std::vector<float>> weights, Arena& scratch) const {
    const std::size_t tokens = layer.k.tokens;
    const bool single = weights.size() == 1;
    const TokenSensitivity found{scratch.TakeZeroed<float>(tokens),
                                 scratch.TakeZeroed<float>(tokens), rank};
    SeenKeys before;
    SeenKeys now;
    std::uint32_t seen = layer.tokens.size();
    if (place.runs != nullptr) seen += Remember(frame, layer, place, before);
    // If it fails, encoding will too, with a better message.
    if (!AddSensitivity(layer, *frame.artefact->query_statistics(layer.layer), *place.ahead,
                        before.log_sum.empty() ? nullptr : &before,
                        place.runs == nullptr ? nullptr : &now, found, scratch)) {
      return {};
    }
    if (place.runs != nullptr) {
      now.queries_from = place.queries_from;
      place.runs->push_back(std::move(now));
    }
    Normalize(rank);
    const auto weigh = [&](PlaneKind kind, std::span<const float> sensitivity,
                           std::vector<float>& out) {
      const double beta = settings_.value(kBeta, single ? PlaneKind::kValue : kind);
      if (beta == 0.0) return;
      const double mean = Mean(frame, layer, kind, choice, sensitivity, seen);
      WeighPlane(choice, layer.tokens, sensitivity, mean, beta, out);
    };
    weigh(PlaneKind::kKey, single ? found.value : found.key, weights[0]);
    if (!single) weigh(PlaneKind::kValue, found.value, weights[1]);
    return {};
  }

  // The keys of the request before this frame, and how many they are. A frame that comes again
  // replaces what it left, and all that followed.
  static std::uint32_t Remember(const FrameContext& frame, const ConstLayerView& layer,
                                const LayerPlace& place, SeenKeys& before) {
    std::erase_if(*place.runs,
                  [&](const SeenKeys& run) { return run.tokens.end > layer.tokens.begin; });
    const LayerGeometry& geometry = frame.geometry->layers[layer.layer];
    std::uint32_t seen = 0;
    for (const SeenKeys& run : *place.runs) {
      if (geometry.window_tokens > 0 &&
          run.tokens.end + static_cast<double>(geometry.window_tokens) <= place.queries_from) {
        continue;
      }
      AddSeenKeys(run, Faded(frame, layer, run, place.queries_from), before);
      seen += run.tokens.size();
    }
    return seen;
  }

  // How the logits of a run change, in the mean, when queries come from further on than when it
  // was seen: that of values' sensitivities p^2 in the artefact's profile.
  static double Faded(const FrameContext& frame, const ConstLayerView& layer, const SeenKeys& run,
                      double queries_from) {
    if (run.queries_from == queries_from) return 0;
    const bool single = frame.geometry->layers[layer.layer].single_plane();
    const AttentionProfile::Plane* const plane =
        frame.artefact->attention(layer.layer, single ? PlaneKind::kKey : PlaneKind::kValue);
    if (plane == nullptr) return 0;
    const AttentionLevels levels(frame.artefact->contents().attention_profile, *plane);
    return std::log(2.0) / 2 *
           (levels.MeanRecency(run.tokens, queries_from) -
            levels.MeanRecency(run.tokens, run.queries_from));
  }

  static void Normalize(std::span<float> rank) {
    double sum = 0.0;
    for (const float value : rank) sum += value;
    if (!(sum > 0.0)) return;
    for (float& value : rank) value = static_cast<float>(value / sum);
  }

  // Of log2 of the sensitivity, that weights are relative to.
  [[nodiscard]] double Mean(const FrameContext& frame, const ConstLayerView& layer, PlaneKind kind,
                            const TokenChoice& choice, std::span<const float> sensitivity,
                            std::uint32_t seen) const {
    TokenRange tokens = layer.tokens;
    tokens.begin = std::min(std::max(tokens.begin, choice.sinks), tokens.end);
    double mean = 0.0;
    for (std::uint32_t t = tokens.begin; t < tokens.end; ++t) {
      mean += LogSensitivity(sensitivity[t - layer.tokens.begin]);
    }
    if (tokens.size() > 0) mean /= tokens.size();
    const AttentionProfile::Plane* const plane = frame.artefact->attention(layer.layer, kind);
    if (plane == nullptr) return mean;
    const AttentionLevels levels(frame.artefact->contents().attention_profile, *plane);
    if (offline_) mean = levels.Expected(tokens, seen, QueriesFrom(frame));
    if (recency_ == 0 || frame.prompt_tokens == 0) return mean;
    const std::uint32_t window = frame.geometry->layers[layer.layer].window_tokens;
    TokenRange request{std::min(choice.sinks, frame.prompt_tokens), frame.prompt_tokens};
    if (window > 0 && request.size() > window) request.begin = request.end - window;
    return mean - recency_ * (levels.MeanRecency(tokens, frame.prompt_tokens) -
                              levels.MeanRecency(request, frame.prompt_tokens));
  }

  // Weights are whole octaves, the classes that quantizers make of them, so that no rounding of a
  // logarithm can be seen in them.
  void WeighPlane(const TokenChoice& choice, TokenRange tokens, std::span<const float> sensitivity,
                  double mean, double beta, std::vector<float>& weights) const {
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      const double relative = LogSensitivity(sensitivity[i]) - mean;
      const double least = choice.always(tokens.begin + i) ? 1.0 : settings_.value(kLeast);
      const double octaves = std::clamp(std::round(beta * relative), -kOctaves, kOctaves);
      const double weight = std::isnan(octaves) ? 1.0 : std::exp2(octaves);
      weights[i] *= static_cast<float>(std::clamp(weight, least, settings_.value(kMost)));
    }
  }

  Settings settings_;
  bool seen_;
  bool offline_;
  double recency_;
};

}  // namespace

const StageEntry& ExpectedStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_selector = [](const Settings& settings) -> Result<std::unique_ptr<Selector>> {
        return std::make_unique<Expected>(settings);
      }};
  return entry;
}

}  // namespace kvserve
