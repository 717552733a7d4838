#include "calibration/frame_expectation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/token_slice.h"
#include "base/try.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

// One layer whose values are `first` in the first 32 tokens and `second` behind them.
struct Text {
  Text(std::uint32_t tokens, float first, float second)
      : geometry(testing::MakeGeometry(DType::kFloat32, {{1, 2, 2}})) {
    geometry.layers[0].rope_style = RopeStyle::kNone;
    geometry.layers[0].rope_theta = 0.0F;
    kv = testing::MakeChunk(geometry, {0, tokens}, tokens);
    const auto layer = kv.view().layers[0];
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint32_t d = 0; d < 2; ++d) {
        testing::SetValue(layer.k, t, 0, d, t < 32 ? first : second);
        testing::SetValue(layer.v, t, 0, d, 1.0F);
      }
    }
  }

  [[nodiscard]] CalibrationArtefact Artefact() const {
    CalibrationArtefact::Contents contents;
    contents.geometry = geometry;
    contents.whitening.assign(
        2, {.columns = 2, .mean = {0, 0}, .scale = {1, 1}, .inverse = {1, 0, 0, 1}});
    return CalibrationArtefact(std::move(contents), Fingerprint{});
  }

  [[nodiscard]] Result<FrameExpectation> Measure() const {
    Workers workers(2);
    return MeasureExpectation(std::vector<ConstKvView>{kv.view()}, Artefact(), 32, workers);
  }

  KvGeometry geometry;
  KvBuffer kv;
};

TEST(MeasureExpectation, MeansAndDeviationsOverWholeFrames) {
  const auto expectation = Text(70, 2.0F, 8.0F).Measure().value();  // energies of 2 and 6 octaves
  EXPECT_EQ(expectation.frame_tokens, 32U);
  ASSERT_EQ(expectation.planes.size(), 2U);
  EXPECT_NEAR(expectation.planes[0].energy, 4, 1e-5);
  EXPECT_NEAR(expectation.planes[0].energy_spread, 2, 1e-5);
  EXPECT_NEAR(expectation.planes[1].energy, 0, 1e-5);
  EXPECT_GT(expectation.planes[1].energy_spread, 0);  // there, though it never changes
  EXPECT_EQ(expectation.planes[0].gain, 0);
}

// A text in chunks, as an engine gives it.
class OneText final : public CalibrationSource {
 public:
  explicit OneText(const Text& text) : text_(text) {}
  const KvGeometry& geometry() const override { return text_.geometry; }
  const Fingerprint& model() const override { return model_; }
  std::uint64_t tokens() const override { return text_.kv.tokens().end; }
  Status ForEachChunk(std::uint32_t chunk_tokens,
                      const std::function<Status(const ConstKvView&)>& visit) override {
    const std::uint32_t end = text_.kv.tokens().end;
    for (std::uint32_t begin = 0; begin < end; begin += chunk_tokens) {
      KVSERVE_TRY(
          visit(SliceTokens(text_.kv.view(), {begin, std::min(begin + chunk_tokens, end)})));
    }
    return {};
  }

 private:
  const Text& text_;
  Fingerprint model_;
};

TEST(MeasureExpectation, OfTextsOfTheirOwnIsTheSameAndSaysSo) {
  const Text text(70, 2.0F, 8.0F);
  OneText source(text);
  Workers workers(1);
  const auto expectation = MeasureInKind(source, text.Artefact(), 32, workers).value();
  EXPECT_TRUE(expectation.in_kind);
  EXPECT_FALSE(text.Measure().value().in_kind);
  EXPECT_EQ(expectation.planes[0].energy, text.Measure().value().planes[0].energy);
}

TEST(MeasureExpectation, NeedsTwoFrames) {
  EXPECT_EQ(Text(40, 1.0F, 1.0F).Measure().error().code, ErrorCode::kBadInput);
}

}  // namespace
}  // namespace kvserve
