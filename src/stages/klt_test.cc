#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kvserve/codec.h"
#include "library/testing/sample_sections.h"
#include "pipeline/chain.h"
#include "pipeline/settings.h"
#include "pipeline/stage.h"
#include "pipeline/testing/chunk.h"
#include "stages/registry.h"

namespace kvserve {

const StageEntry& KltStage();

namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kTokens = 150;  // more than one block of rows

std::unique_ptr<Transform> Make(double scope, double on = 1) {
  const std::vector<ParameterValue> values = {{1, scope}, {2, scope}, {3, on}, {4, on}};
  const auto settings = CheckedSettings(*KltStage().info, values, ErrorCode::kInternal);
  return KltStage().make_transform(settings.value()).value();
}

struct Case {
  Arena arena;
  KvGeometry geometry = testing::MakeGeometry(DType::kFloat16, {{3, 8, 20}});
  CalibrationArtefact artefact;
  FrameContext frame;
  PlaneContext plane;

  Case() : artefact(Contents(), {}) {
    frame.geometry = &geometry;
    frame.artefact = &artefact;
    plane.frame = &frame;
    plane.kind = PlaneKind::kValue;
    plane.tokens = {0, kTokens};
    plane.arena = &arena;
  }
  static CalibrationArtefact::Contents Contents() {
    CalibrationArtefact::Contents contents;
    contents.klt_heads.resize(2);
    contents.klt_joint.resize(2);
    contents.klt_heads[1] = testing::SampleKlt(60, 20);
    contents.klt_joint[1] = testing::SampleKlt(60, 60);
    return contents;
  }
};

std::vector<float> Values() {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(1.0F, 3.0F);
  std::vector<float> values(std::size_t{kTokens} * 60);
  for (float& value : values) value = normal(random);
  return values;
}

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

TEST(Klt, ComponentsAreProjectionsOfWhatTheMeanLeaves) {
  for (const double scope : {0.0, 1.0}) {
    Case test;
    const KarhunenLoeve& klt =
        scope == 0 ? test.artefact.contents().klt_heads[1] : test.artefact.contents().klt_joint[1];
    const auto input = Values();
    auto values = input;
    std::vector<std::byte> side;
    ByteWriter writer(side);
    ASSERT_TRUE(Make(scope)->Forward(test.plane, {values.data(), kTokens, 3, 20}, writer));
    EXPECT_TRUE(side.empty());
    const std::size_t n = klt.columns;
    for (std::size_t at = 0; at < values.size(); ++at) {
      const std::size_t row = at / 60;
      const std::size_t group = at % 60 / n;
      const std::size_t component = at % 60 % n;
      double expected = 0;
      for (std::size_t c = 0; c < n; ++c) {
        const std::size_t column = group * n + c;
        expected += double{klt.basis[(group * n + component) * n + c]} *
                    (input[row * 60 + column] - klt.mean[column]);
      }
      ASSERT_NEAR(values[at], expected, 2e-5) << at;
    }
  }
}

TEST(Klt, ComesBackAndKeepsDistances) {
  for (const double scope : {0.0, 1.0}) {
    Case test;
    const auto input = Values();
    auto values = input;
    std::vector<std::byte> side;
    ByteWriter writer(side);
    const auto transform = Make(scope);
    ASSERT_TRUE(transform->Forward(test.plane, {values.data(), kTokens, 3, 20}, writer));
    values[77] += 0.5F;  // an error of a quantizer
    ByteReader reader({});
    ASSERT_TRUE(transform->Inverse(test.plane, {values.data(), kTokens, 3, 20}, reader));
    for (std::size_t i = 0; i < input.size(); ++i) values[i] -= input[i];
    EXPECT_NEAR(Norm(values), 0.5, 2e-4);
  }
}

TEST(Klt, PlanesThatAreOffPassThrough) {
  Case test;
  const auto input = Values();
  auto values = input;
  std::vector<std::byte> side;
  ByteWriter writer(side);
  const auto off = Make(0, 0);
  ASSERT_TRUE(off->Forward(test.plane, {values.data(), kTokens, 3, 20}, writer));
  EXPECT_EQ(values, input);
  EXPECT_FALSE(off->needs_artefact());
  EXPECT_FALSE(off->needs_unrotated_keys());
  EXPECT_EQ(off->scale_source(PlaneKind::kKey), ScaleSource::kUnit);
  EXPECT_TRUE(Make(0)->needs_artefact());
  EXPECT_EQ(Make(0)->scale_source(PlaneKind::kKey), ScaleSource::kCalibrated);
}

TEST(Klt, SaysWhatTheArtefactLacks) {
  Case test;
  auto values = Values();
  std::vector<std::byte> side;
  ByteWriter writer(side);
  const RealPlane rows = {values.data(), kTokens, 3, 20};
  test.plane.kind = PlaneKind::kKey;
  auto status = Make(0)->Forward(test.plane, rows, writer);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
  EXPECT_THAT(status.error().message, HasSubstr("no KLT of this plane's heads"));
  status = Make(1)->Forward(test.plane, rows, writer);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("no KLT over all heads"));
  test.plane.kind = PlaneKind::kValue;
  status = Make(1)->Forward(test.plane, {values.data(), kTokens, 1, 20}, writer);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("60 columns where the plane has 20"));
}

// Axes of keys before RoPE do not fit rotated keys, whether or not the model rotates any.
TEST(Klt, StandsBehindUnRope) {
  const CodecOptions options{
      .calibration = std::make_shared<const CalibrationArtefact>(Case::Contents(), Fingerprint{})};
  for (const char* text : {"klt|uniform", "klt|unrope|uniform", "hadamard|klt:v_on=0|uniform"}) {
    const auto refused = FrameEncoder::Create(ParseProfile(text).value(), options);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr("put 'unrope' before it")) << text;
    const auto forged = Chain::Create(ParseProfile(text)->stages, BuiltinStages(), DType::kFloat16,
                                      Device::kHost, ProfileOrigin::kFrame);
    ASSERT_FALSE(forged) << text;
    EXPECT_EQ(forged.error().code, ErrorCode::kCorruptData);
  }
  for (const char* text : {"unrope|klt|uniform", "klt:k_on=0|uniform"}) {
    EXPECT_TRUE(FrameEncoder::Create(ParseProfile(text).value(), options)) << text;
  }
}

}  // namespace
}  // namespace kvserve
