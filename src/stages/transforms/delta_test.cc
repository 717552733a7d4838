#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "pipeline/settings.h"
#include "pipeline/stage.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {

const StageEntry& DeltaStage();

namespace {

constexpr std::uint32_t kHeads = 2;
constexpr std::uint32_t kDim = 12;
constexpr std::size_t kColumns = kHeads * kDim;

struct Case {
  Arena arena;
  KvGeometry geometry;
  FrameContext frame;
  PlaneContext plane;

  explicit Case(TokenRange tokens, DType dtype = DType::kFloat16)
      : geometry(testing::MakeGeometry(dtype, {{kHeads, kDim, kDim}})) {
    frame.geometry = &geometry;
    plane.frame = &frame;
    plane.layer = 3;
    plane.tokens = tokens;
    plane.arena = &arena;
  }
};

std::unique_ptr<Transform> Make(double axis, double group = 4, double on = 1) {
  const std::vector<ParameterValue> values = {{1, axis}, {2, group}, {3, on}, {4, on}};
  const auto settings = CheckedSettings(*DeltaStage().info, values, ErrorCode::kInternal);
  return DeltaStage().make_transform(settings.value()).value();
}

std::vector<float> Gaussian(std::size_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(rows * kColumns);
  for (float& value : values) value = normal(random);
  return values;
}

double Energy(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

std::vector<std::byte> Forward(const Transform& transform, const PlaneContext& plane,
                               std::vector<float>& values) {
  std::vector<std::byte> side;
  ByteWriter writer(side);
  const auto rows = static_cast<std::uint32_t>(values.size() / kColumns);
  EXPECT_TRUE(transform.Forward(plane, {values.data(), rows, kHeads, kDim}, writer));
  return side;
}

Status Inverse(const Transform& transform, const PlaneContext& plane,
               const std::vector<std::byte>& side, std::vector<float>& values) {
  ByteReader reader(side);
  const auto rows = static_cast<std::uint32_t>(values.size() / kColumns);
  Status status = transform.Inverse(plane, {values.data(), rows, kHeads, kDim}, reader);
  EXPECT_TRUE(!status || reader.remaining() == 0);
  return status;
}

TEST(DeltaAlongTokens, TakesOutWhatTokensShareAndKeepsAnchorsIn16Bits) {
  Case test({8, 18});
  auto values = Gaussian(10, 1);
  const auto shared = Gaussian(1, 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.1F * values[i] + 4.0F * shared[i % kColumns];
  }
  const auto before = values;
  const auto side = Forward(*Make(0), test.plane, values);
  EXPECT_EQ(side.size(), 1 + 3 * kColumns * 2 + kHeads);  // anchors of tokens 8, 12 and 16
  EXPECT_LT(Energy(values), 0.01 * Energy(before));
  for (const std::size_t anchor : {0U, 4U, 8U}) {
    EXPECT_EQ(Energy(std::span(values).subspan(anchor * kColumns, kColumns)), 0.0);
  }
  for (float& value : values) value += 0.01F;  // the quantizer's error, once per token
  ASSERT_TRUE(Inverse(*Make(0), test.plane, side, values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool anchor = i / kColumns % 4 == 0;
    ASSERT_NEAR(values[i], before[i] + (anchor ? 0.0F : 0.01F), anchor ? 0.004F : 1e-5F) << i;
  }
}

TEST(DeltaAlongTokens, AnchorsOfFloat32CachesAreExact) {
  Case test({8, 13}, DType::kFloat32);
  auto values = Gaussian(5, 3);
  const auto before = values;
  const auto side = Forward(*Make(0), test.plane, values);
  EXPECT_EQ(side.size(), 1 + 2 * kColumns * 4 + kHeads);
  ASSERT_TRUE(Inverse(*Make(0), test.plane, side, values));
  for (const std::size_t row : {0U, 4U}) {
    EXPECT_TRUE(std::equal(&values[row * kColumns], &values[row * kColumns] + kColumns,
                           &before[row * kColumns]));
  }
}

// Tokens that have nothing in common must not cost more than before.
TEST(DeltaAlongTokens, WeightsKeepUnlikeTokensFromGrowing) {
  Case test({8, 136});
  auto values = Gaussian(128, 4);
  const double before = Energy(values);
  (void)Forward(*Make(0), test.plane, values);
  EXPECT_LT(Energy(values), 1.001 * before);
}

TEST(Delta, LeavesTheFirstTokenOfTheRequestAlone) {
  for (const double axis : {0.0, 1.0}) {
    Case test({0, 9});
    const auto earlier = Gaussian(9, 5);
    const DecodedPlane decoded{2, PlaneKind::kKey, {0, 9}, {earlier.data(), 9, kHeads, kDim}};
    test.plane.decoded = {&decoded, 1};
    auto values = earlier;
    std::fill(values.begin(), values.begin() + kColumns, 1e4F);
    const auto side = Forward(*Make(axis), test.plane, values);
    EXPECT_EQ(values[0], 1e4F);
    EXPECT_EQ(values[kColumns - 1], 1e4F);
    EXPECT_LT(Energy(std::span(values).subspan(kColumns)), Energy(earlier));
    Case alone({0, 1});
    values.resize(kColumns);
    EXPECT_TRUE(Forward(*Make(axis), alone.plane, values).empty());
  }
}

TEST(DeltaAlongLayers, PredictsFromTheNearestPlaneThatFits) {
  Case test({8, 18});
  const auto likely = Gaussian(10, 6);
  const auto other = Gaussian(10, 7);
  const ConstRealPlane good{likely.data(), 10, kHeads, kDim};
  const ConstRealPlane bad{other.data(), 10, kHeads, kDim};
  const ConstRealPlane wide{other.data(), 10, 1, kHeads * kDim};
  const std::vector<DecodedPlane> decoded = {{0, PlaneKind::kKey, {8, 18}, bad},
                                             {1, PlaneKind::kKey, {8, 18}, good},
                                             {1, PlaneKind::kValue, {8, 18}, bad},
                                             {2, PlaneKind::kKey, {8, 18}, wide},
                                             {2, PlaneKind::kKey, {18, 18}, {}}};
  test.plane.decoded = decoded;
  auto values = Gaussian(10, 8);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1F * values[i] - 0.7F * likely[i];
  const auto before = values;
  const auto transform = Make(1);
  EXPECT_TRUE(transform->needs_feedback());
  EXPECT_FALSE(Make(0)->needs_feedback());
  const auto side = Forward(*transform, test.plane, values);
  EXPECT_EQ(side.size(), kHeads);
  EXPECT_LT(Energy(values), 0.05 * Energy(before));
  ASSERT_TRUE(Inverse(*transform, test.plane, side, values));
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], before[i], 1e-5F);
}

TEST(DeltaAlongLayers, FirstPlanesAreUnchanged) {
  Case test({8, 18});
  auto values = Gaussian(10, 9);
  const auto before = values;
  EXPECT_TRUE(Forward(*Make(1), test.plane, values).empty());
  EXPECT_EQ(values, before);
  ASSERT_TRUE(Inverse(*Make(1), test.plane, {}, values));
  EXPECT_EQ(values, before);
}

TEST(Delta, SwitchedOffPlanesAreLeftAlone) {
  Case test({8, 18});
  auto values = Gaussian(10, 9);
  const auto before = values;
  EXPECT_TRUE(Forward(*Make(0, 4, 0), test.plane, values).empty());
  EXPECT_EQ(values, before);
}

TEST(Delta, RefusesSideBytesThatCannotBe) {
  Case test({8, 18});
  auto values = Gaussian(10, 1);
  const auto side = Forward(*Make(0), test.plane, values);
  for (std::size_t length = 0; length < side.size(); ++length) {
    const auto status =
        Inverse(*Make(0), test.plane,
                {side.begin(), side.begin() + static_cast<std::ptrdiff_t>(length)}, values);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  }
  auto form = side;
  form[0] = std::byte{2};
  EXPECT_FALSE(Inverse(*Make(0), test.plane, form, values));
}

}  // namespace
}  // namespace kvserve
