#include <gtest/gtest.h>

#include <cmath>

#include "kvserve/codec.h"
#include "pipeline/plane_order.h"
#include "pipeline/stage.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {

const StageEntry& UnRopeStage();

namespace {

constexpr std::uint32_t kTokens = 20;

struct Case {
  Arena arena;
  KvGeometry geometry = testing::MakeGeometry(DType::kFloat32, {{2, 64, 64}});
  FrameContext frame;
  PlaneContext plane;

  explicit Case(RopeStyle style, std::uint32_t first_token = 0) {
    geometry.layers[0].rope_style = style;
    geometry.layers[0].rope_theta = style == RopeStyle::kNone ? 0.0F : 10000.0F;
    frame.geometry = &geometry;
    plane.frame = &frame;
    plane.tokens = {first_token, first_token + kTokens};
    plane.arena = &arena;
  }
  std::vector<float> Forward(std::vector<float> values) {
    std::vector<std::byte> side;
    ByteWriter writer(side);
    const auto transform = UnRopeStage().make_transform(Settings()).value();
    EXPECT_TRUE(transform->Forward(plane, {values.data(), kTokens, 2, 64}, writer));
    EXPECT_TRUE(side.empty());
    return values;
  }
  std::vector<float> Inverse(std::vector<float> values) {
    ByteReader reader({});
    const auto transform = UnRopeStage().make_transform(Settings()).value();
    EXPECT_TRUE(transform->Inverse(plane, {values.data(), kTokens, 2, 64}, reader));
    return values;
  }
};

// One key at every position, rotated as an engine would.
std::vector<float> RotatedKey(RopeStyle style, std::uint32_t first_token) {
  std::vector<float> values;
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    for (std::uint32_t i = 0; i < 128; ++i) {
      const bool halves = style == RopeStyle::kHalves;
      const std::uint32_t d = i % 64;
      const std::uint32_t pair = halves ? d % 32 : d / 2;
      const double angle = (first_token + t) * std::pow(10000.0, -2.0 * pair / 64);
      const double a = 1 + pair;
      const double b = 0.5 * pair - 3;
      const bool first = halves ? d < 32 : d % 2 == 0;
      values.push_back(static_cast<float>(first ? a * std::cos(angle) - b * std::sin(angle)
                                                : a * std::sin(angle) + b * std::cos(angle)));
    }
  }
  return values;
}

TEST(UnRope, GivesTheKeyBeforeItsRotation) {
  for (const RopeStyle style : {RopeStyle::kHalves, RopeStyle::kInterleaved}) {
    for (const std::uint32_t first : {0U, 5U, 4000U}) {
      Case test(style, first);
      const auto values = test.Forward(RotatedKey(style, first));
      const auto unrotated = RotatedKey(style, 0);  // its first row is
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], unrotated[i % 128], 2e-5) << i;
      }
    }
  }
}

TEST(UnRope, ComesBack) {
  for (const RopeStyle style : {RopeStyle::kHalves, RopeStyle::kInterleaved}) {
    Case test(style, 1000);
    const auto input = RotatedKey(style, 1000);
    const auto output = test.Inverse(test.Forward(input));
    for (std::size_t i = 0; i < input.size(); ++i) ASSERT_NEAR(output[i], input[i], 2e-5);
  }
}

TEST(UnRope, LeavesValuesAndUnknownRotationsAlone) {
  const auto input = RotatedKey(RopeStyle::kHalves, 3);
  EXPECT_EQ(Case(RopeStyle::kNone).Forward(input), input);
  Case values(RopeStyle::kHalves);
  values.plane.kind = PlaneKind::kValue;
  EXPECT_EQ(values.Forward(input), input);
  EXPECT_EQ(values.Inverse(input), input);
  Case keys(RopeStyle::kHalves);
  EXPECT_NE(keys.Forward(input), input);
}

// A window layer's plane begins later than the frame.
TEST(UnRope, PositionsAreThoseOfThePlane) {
  KvGeometry geometry = testing::MakeGeometry(DType::kFloat32, {{1, 16, 16}, {1, 16, 16, 4}});
  for (auto& layer : geometry.layers) {
    layer.rope_style = RopeStyle::kHalves;
    layer.rope_theta = 10000.0F;
  }
  const KvBuffer chunk = testing::MakeChunk(geometry, {30, 50}, 52);
  std::vector<std::byte> frame;
  ASSERT_TRUE(
      EncodeFrame(chunk.view(), ParseProfile("unrope|uniform:levels=256").value(), {}, frame));
  KvBuffer decoded;
  ASSERT_TRUE(DecodeFrame(frame, {}, decoded));
  const auto before = CodingOrder(chunk.view());
  const auto after = CodingOrder(std::as_const(decoded).view());
  for (std::size_t p = 0; p < before.size(); ++p) {
    const auto x = testing::PlaneValues(before[p].view);
    const auto y = testing::PlaneValues(after[p].view);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 0.4F) << p;
  }
}

}  // namespace
}  // namespace kvserve
