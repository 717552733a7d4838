#include "stages/testing/weighed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/split_mix.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/dropped_tokens.h"
#include "pipeline/fast_decoder.h"
#include "pipeline/fast_encoder.h"
#include "pipeline/plane_order.h"
#include "pipeline/profile_text.h"
#include "pipeline/testing/chunk.h"
#include "stages/registry.h"

namespace kvserve::testing {
namespace {

constexpr std::uint8_t kSeed = 1;
constexpr std::uint8_t kOctaves = 2;
constexpr std::uint8_t kDrop = 3;
constexpr std::uint8_t kCommon = 4;

constexpr ParameterInfo kParameters[] = {
    {.id = kSeed, .name = "seed", .high = 1000, .default_k = 1},
    {.id = kOctaves, .name = "octaves", .high = 9, .default_k = 2},
    {.id = kDrop, .name = "drop", .type = ParameterType::kReal, .high = 1},
    {.id = kCommon, .name = "common", .type = ParameterType::kBoolean, .high = 1},
};
constexpr StageInfo kInfo = {.id = 0x01FF,
                             .name = "given",
                             .kind = StageKind::kSelector,
                             .lossless = true,
                             .parameters = kParameters};

class Given final : public Selector {
 public:
  explicit Given(const Settings& settings) : settings_(settings) {}

  Status Weigh(const FrameContext& /*frame*/, const ConstKvView& view, SelectorMemory* /*memory*/,
               std::span<std::vector<float>> weights) const override {
    const auto planes = CodingOrder(view);
    for (std::size_t p = 0; p < planes.size(); ++p) {
      const std::uint64_t plane = settings_.integer(kCommon) != 0 ? 0 : p + 1;
      for (std::size_t t = 0; t < weights[p].size(); ++t) {
        const std::uint64_t token = planes[p].tokens.begin + t;
        const std::uint64_t drawn =
            SplitMix64((settings_.integer(kSeed) * 1000003 + plane) * 1000003 + token).Next();
        const bool drop = static_cast<double>(drawn >> 40) < settings_.value(kDrop) * 0x1p24;
        const auto octaves = static_cast<int>(settings_.integer(kOctaves));
        const int octave =
            static_cast<int>(drawn % (2 * static_cast<unsigned>(octaves) + 1)) - octaves;
        weights[p][t] *= drop ? 0.0F : std::ldexp(1.0F, octave);
      }
    }
    return {};
  }
  [[nodiscard]] bool may_drop() const override { return settings_.value(kDrop) > 0.0; }

 private:
  Settings settings_;
};

Chain MakeChain(std::string_view text, DType dtype) {
  const auto profile = ParseProfileText(text, WeighedStages());
  EXPECT_TRUE(profile) << text << ": " << (profile ? "" : profile.error().message);
  auto chain =
      Chain::Create(profile->stages, WeighedStages(), dtype, Device::kHost, ProfileOrigin::kCaller);
  EXPECT_TRUE(chain) << text << ": " << (chain ? "" : chain.error().message);
  return std::move(*chain);
}

void Encode(const Chain& chain, const ConstKvView& view, const FrameContext& context,
            WeighedFrame& frame) {
  CodedSections plain;
  CodedSections fast;
  auto status = EncodePlanes(chain, view, context, plain);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  status = FastEncoder().Encode(chain, view, context, fast);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  EXPECT_TRUE(plain.classes == fast.classes) << "executors write other classes";
  EXPECT_TRUE(plain.side == fast.side) << "executors write other side bytes";
  EXPECT_TRUE(plain.symbols == fast.symbols) << "executors write other symbols";
  frame.classes = std::move(plain.classes);
  frame.side = std::move(plain.side);
  frame.symbols = std::move(plain.symbols);
}

Status DecodeBy(const Chain& chain, const ConstKvView& view, const FrameContext& context,
                const WeighedFrame& frame, Executor executor, KvBuffer& out) {
  std::vector<KvBuffer::LayerTokens> layers;
  for (const auto& layer : view.layers) layers.push_back({layer.layer, layer.tokens});
  EXPECT_TRUE(out.Resize(*view.geometry, view.tokens, layers));
  const KvView planes = out.view();
  const SectionBytes sections = {frame.classes, frame.side, frame.symbols};
  if (executor == Executor::kReference) return DecodePlanes(chain, sections, context, planes);
  return FastDecoder().Decode(chain, sections, context, planes, [&] { return &planes; });
}

void Decode(const Chain& chain, const ConstKvView& view, FrameContext context,
            WeighedFrame& frame) {
  KvBuffer fast;
  DroppedTokens of_fast;
  context.dropped = &of_fast;
  auto status = DecodeBy(chain, view, context, frame, Executor::kFast, fast);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  DroppedTokens dropped;
  context.dropped = &dropped;
  status = DecodeBy(chain, view, context, frame, Executor::kReference, frame.decoded);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  frame.dropped.assign(dropped.common().begin(), dropped.common().end());
  frame.partly_dropped = dropped.partly();
  EXPECT_TRUE(std::ranges::equal(of_fast.common(), dropped.common()));
  EXPECT_EQ(of_fast.partly(), dropped.partly());
  EXPECT_EQ(Difference(AsConst(fast.view()), AsConst(frame.decoded.view())), "");
}

// What an executor gets, with threads and an artefact.
struct WeighedContext {
  WeighedContext(const ConstKvView& view, unsigned threads)
      : workers(threads), artefact(SampleArtefact(*view.geometry)) {
    frame.geometry = view.geometry;
    frame.tokens = view.tokens;
    frame.artefact = artefact.get();
    frame.arena = &arena;
    frame.workers = &workers;
  }
  Arena arena;
  Workers workers;
  std::shared_ptr<const CalibrationArtefact> artefact;
  FrameContext frame;
};

}  // namespace

StageTable WeighedStages() {
  static const std::vector<StageEntry> table = [] {
    std::vector<StageEntry> all(BuiltinStages().begin(), BuiltinStages().end());
    all.push_back({.info = &kInfo,
                   .make_selector = [](const Settings& s) -> Result<std::unique_ptr<Selector>> {
                     return std::make_unique<Given>(s);
                   }});
    return all;
  }();
  return table;
}

WeighedFrame CodeWeighed(std::string_view text, const ConstKvView& view, unsigned threads) {
  const Chain chain = MakeChain(text, view.geometry->dtype);
  const WeighedContext context(view, threads);
  WeighedFrame frame;
  for (const auto& plane : CodingOrder(view)) frame.weights.emplace_back(plane.tokens.size(), 1.0F);
  for (const auto& selector : chain.selectors()) {
    EXPECT_TRUE(selector.stage->Weigh(context.frame, view, nullptr, frame.weights));
  }
  Encode(chain, view, context.frame, frame);
  Decode(chain, view, context.frame, frame);
  return frame;
}

Status DecodeWeighed(std::string_view text, const ConstKvView& view, const WeighedFrame& sections,
                     Executor executor, KvBuffer& out) {
  const WeighedContext context(view, 2);
  return DecodeBy(MakeChain(text, view.geometry->dtype), view, context.frame, sections, executor,
                  out);
}

}  // namespace kvserve::testing
