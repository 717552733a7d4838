// KLT, query statistics and head scores as Calibrate takes them from an engine and from KV alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/try.h"
#include "calibration/calibrate.h"
#include "calibration/engine_source.h"
#include "engine/testing/fake_engine.h"
#include "kernels/rotate/rotate.h"
#include "library/calibration_file.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

using testing::FakeEngine;
using ::testing::HasSubstr;

std::vector<std::vector<Token>> Prompts(const std::vector<std::size_t>& sizes) {
  std::vector<std::vector<Token>> prompts;
  for (const std::size_t size : sizes) {
    auto& prompt = prompts.emplace_back();
    for (std::size_t i = 0; i < size; ++i) {
      prompt.push_back(static_cast<Token>((i * 7 + prompts.size() * 31) % 256));
    }
  }
  return prompts;
}

CalibrationOptions Everything() {
  CalibrationOptions options;
  options.frame_tokens = {64};
  options.query_statistics = options.head_scores = true;
  return options;
}

TEST(ModelStatistics, EngineGivesAllOfThem) {
  FakeEngine engine({});
  EngineSource source(engine, Prompts({100, 65, 3}), 32);
  const auto contents = Calibrate(source, Everything());
  ASSERT_TRUE(contents) << contents.error().message;
  ASSERT_EQ(contents->klt_heads.size(), 6U);
  ASSERT_EQ(contents->klt_joint.size(), 6U);
  EXPECT_EQ(contents->klt_heads[0].columns, 8U);
  EXPECT_EQ(contents->klt_joint[0].columns, 16U);
  EXPECT_EQ(contents->klt_joint[5].columns, 8U);  // two heads of 4
  ASSERT_EQ(contents->query_statistics.size(), 3U);
  EXPECT_EQ(contents->query_statistics[0].heads, 4U);
  ASSERT_EQ(contents->head_scores.size(), 3U);
  EXPECT_EQ(contents->head_scores[1].size(), 2U);
  const auto bytes = FormatCalibration(*contents);
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_TRUE(ParseCalibration(*bytes));
  FakeEngine again({});
  EngineSource repeated(again, Prompts({100, 65, 3}), 32);
  EXPECT_EQ(FormatCalibration(Calibrate(repeated, Everything()).value()).value(), *bytes);
}

// Rows are those that the tap showed, but for token 0 of each text, whatever pieces they came in.
TEST(ModelStatistics, QueriesAreThoseBeforeRotation) {
  FakeEngine engine({});
  const auto prompts = Prompts({70, 33});
  std::vector<double> sum(32);
  ASSERT_TRUE(
      engine.TapQueries([&](std::uint32_t layer, std::uint32_t first, std::span<const float> values,
                            std::uint32_t heads, std::uint32_t dim, bool rotated) {
        if (layer != 1 || rotated) return;
        for (std::size_t i = first == 0 ? std::size_t{heads} * dim : 0; i < values.size(); ++i) {
          sum[i % 32] += values[i];
        }
      }));
  for (const auto& prompt : prompts) {
    const SequenceId sequence = engine.OpenSequence().value();
    ASSERT_TRUE(engine.Prefill(sequence, prompt, 0));
    engine.CloseSequence(sequence);
  }
  EngineSource source(engine, prompts, 32);
  const auto contents = Calibrate(source, Everything());
  ASSERT_TRUE(contents) << contents.error().message;
  const QueryStatistics& queries = contents->query_statistics[1];
  ASSERT_EQ(queries.mean.size(), 32U);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_NEAR(queries.mean[i], sum[i] / (69 + 32), 1e-5);
  for (std::size_t head = 0; head < 4; ++head) {
    for (std::size_t d = 0; d < 8; ++d) {
      EXPECT_NEAR(queries.covariance[(head * 8 + d) * 8 + d], 1.0 / 3, 0.15);  // uniform in [-1, 1)
    }
  }
}

// A source of one chunk of made-up KV.
class ChunkSource final : public CalibrationSource {
 public:
  explicit ChunkSource(const KvBuffer& chunk) : chunk_(chunk) {}
  [[nodiscard]] const KvGeometry& geometry() const override { return chunk_.geometry(); }
  [[nodiscard]] const Fingerprint& model() const override { return model_; }
  [[nodiscard]] std::uint64_t tokens() const override { return chunk_.tokens().size(); }
  [[nodiscard]] Status ForEachChunk(
      std::uint32_t, const std::function<Status(const ConstKvView&)>& visit) override {
    return visit(chunk_.view());
  }

 private:
  const KvBuffer& chunk_;
  Fingerprint model_;
};

// Keys that were one vector and noise along one axis before they were rotated.
TEST(ModelStatistics, AxesOfKeysAreThoseBeforeRotation) {
  const KvGeometry geometry = testing::MakeGeometry(DType::kFloat32, {{1, 32, 8}});
  KvBuffer chunk = testing::MakeChunk(geometry, {0, 200});
  std::vector<float> keys;
  for (int t = 0; t < 200; ++t) {
    const float along = t == 0 ? 1000.0F : static_cast<float>(t * 37 % 19 - 9) / 9.0F;
    for (int d = 0; d < 32; ++d) {
      keys.push_back(static_cast<float>(d) + (d == 3 ? 0.6F : d == 20 ? -0.8F : 0.0F) * along);
    }
  }
  std::vector<std::uint64_t> turns(RopePairs(32));
  RopeTurns(geometry.layers[0].rope_theta, 32, turns);
  ApplyRope(keys, {geometry.layers[0].rope_style, 32, 1, 0, turns});
  ASSERT_TRUE(StoreFloats(keys, chunk.view().layers[0].k));
  ChunkSource source(chunk);
  CalibrationOptions options;
  const auto contents = Calibrate(source, options);
  ASSERT_TRUE(contents) << contents.error().message;
  const KarhunenLoeve& klt = contents->klt_heads[0];
  EXPECT_NEAR(klt.basis[3], -0.6, 1e-4);  // the largest entry is positive
  EXPECT_NEAR(klt.basis[20], 0.8, 1e-4);
  EXPECT_LT(klt.variance[1], 1e-6F * klt.variance[0]);
  EXPECT_NEAR(klt.mean[7], 7.0, 1e-3);
}

TEST(ModelStatistics, CapturedKvHasNoQueries) {
  const KvGeometry geometry = testing::MakeGeometry(DType::kFloat16, {{2, 16, 16}});
  const KvBuffer chunk = testing::MakeChunk(geometry, {0, 40});
  ChunkSource source(chunk);
  const auto refused = Calibrate(source, Everything());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("holds no queries"));
  FakeEngine engine({});
  EngineSource nothing(engine, Prompts({1, 1}), 32);
  EXPECT_FALSE(Calibrate(nothing, Everything()));
}

TEST(ModelStatistics, OptionsLeaveThemOut) {
  const KvGeometry geometry = testing::MakeGeometry(DType::kFloat16, {{2, 16, 16}, {1, 16, 0}});
  const KvBuffer chunk = testing::MakeChunk(geometry, {0, 40});
  ChunkSource source(chunk);
  CalibrationOptions options;
  options.joint_columns = 20;
  const auto narrow = Calibrate(source, options);
  ASSERT_TRUE(narrow) << narrow.error().message;
  EXPECT_EQ(narrow->klt_heads[0].columns, 16U);
  EXPECT_EQ(narrow->klt_joint[0].columns, 0U);   // 32
  EXPECT_EQ(narrow->klt_joint[2].columns, 16U);  // the single plane
  EXPECT_EQ(narrow->klt_joint[3].columns, 0U);
  options.klt = false;
  const auto none = Calibrate(source, options);
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_TRUE(none->klt_heads.empty());
  EXPECT_TRUE(none->klt_joint.empty());
  EXPECT_FALSE(none->statistics.empty());
}

}  // namespace
}  // namespace kvserve
