// Attention sinks and a window: the first tokens of the request and the last of the prompt weigh
// more than those between. With outside=0 those are dropped (StreamingLLM, Xiao et al. 2023,
// arXiv:2309.17453); with inside above 1 the ends are sent at higher precision.
#include "pipeline/token_choice.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kInside = 4;

constexpr ParameterInfo kParameters[] = {
    SinksParameter(),
    RecentParameter(256),
    OutsideParameter(),
    {.id = kInside,
     .name = "inside",
     .type = ParameterType::kReal,
     .low = 1,
     .high = 64,
     .default_k = 1,
     .help = "weight of the tokens that are always kept"},
};

constexpr StageInfo kInfo = {
    .id = 0x0101,
    .name = "window",
    .kind = StageKind::kSelector,
    .parameters = kParameters,
    .summary = "first and last tokens weigh more than the others",
};

class Window : public Selector {
 public:
  explicit Window(const Settings& settings) : settings_(settings) {}

  Status Weigh(const FrameContext& frame, const ConstKvView& view, SelectorMemory* /*memory*/,
               std::span<std::vector<float>> weights) const override {
    const TokenChoice choice{.sinks = settings_.integer(kSinksId),
                             .kept_from = RecentBegin(frame, settings_.integer(kRecentId))};
    const auto inside = static_cast<float>(settings_.value(kInside));
    const float outside = OutsideWeight(settings_);
    std::size_t plane = 0;
    const auto weigh = [&](TokenRange tokens) {
      for (std::uint32_t t = tokens.begin; t < tokens.end; ++t) {
        weights[plane][t - tokens.begin] *= choice.always(t) ? inside : outside;
      }
      ++plane;
    };
    for (const auto& layer : view.layers) {
      weigh(layer.tokens);
      if (!view.geometry->layers[layer.layer].single_plane()) weigh(layer.tokens);
    }
    return {};
  }
  [[nodiscard]] bool may_drop() const override { return settings_.value(kOutsideId) == 0.0; }

 private:
  Settings settings_;
};

}  // namespace

const StageEntry& WindowStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_selector = [](const Settings& settings) -> Result<std::unique_ptr<Selector>> {
        return std::make_unique<Window>(settings);
      }};
  return entry;
}

}  // namespace kvserve
