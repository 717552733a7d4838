// The seed and the switches are what undoes the rotation: they travel in the frame.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "pipeline/settings.h"
#include "pipeline/stage.h"

namespace kvserve {

const StageEntry& HadamardStage();

namespace {

constexpr std::uint32_t kTokens = 5;
constexpr std::uint32_t kHeads = 2;
constexpr std::uint32_t kDim = 80;

std::unique_ptr<Transform> Make(double seed, double k_on, double v_on) {
  const std::vector<ParameterValue> values = {{1, seed}, {2, k_on}, {3, v_on}};
  const auto settings = CheckedSettings(*HadamardStage().info, values, ErrorCode::kInternal);
  return HadamardStage().make_transform(settings.value()).value();
}

std::vector<float> Values() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kTokens * kHeads * kDim);
  for (float& value : values) value = normal(random);
  return values;
}

PlaneContext Plane(PlaneKind kind, Arena& arena) {
  PlaneContext plane;
  plane.layer = 3;
  plane.kind = kind;
  plane.arena = &arena;
  return plane;
}

std::vector<float> Forward(const Transform& transform, PlaneKind kind, std::vector<float> values) {
  Arena arena;
  const PlaneContext plane = Plane(kind, arena);
  std::vector<std::byte> side;
  ByteWriter writer(side);
  EXPECT_TRUE(transform.Forward(plane, {values.data(), kTokens, kHeads, kDim}, writer));
  EXPECT_TRUE(side.empty());
  return values;
}

std::vector<float> Inverse(const Transform& transform, PlaneKind kind, std::vector<float> values) {
  Arena arena;
  const PlaneContext plane = Plane(kind, arena);
  ByteReader reader({});
  EXPECT_TRUE(transform.Inverse(plane, {values.data(), kTokens, kHeads, kDim}, reader));
  return values;
}

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

TEST(HadamardStage, SameSeedUndoesAnotherDoesNot) {
  const auto values = Values();
  for (const auto kind : {PlaneKind::kKey, PlaneKind::kValue}) {
    const auto rotated = Forward(*Make(7, 1, 1), kind, values);
    EXPECT_GT(LargestDifference(rotated, values), 0.5F);
    EXPECT_LT(LargestDifference(Inverse(*Make(7, 1, 1), kind, rotated), values), 1e-5F);
    EXPECT_GT(LargestDifference(Inverse(*Make(8, 1, 1), kind, rotated), values), 0.5F);
  }
}

TEST(HadamardStage, SwitchedOffPlanesAreLeftAlone) {
  const auto values = Values();
  const auto k_only = Make(7, 1, 0);
  EXPECT_EQ(Forward(*k_only, PlaneKind::kValue, values), values);
  EXPECT_EQ(Inverse(*k_only, PlaneKind::kValue, values), values);
  EXPECT_NE(Forward(*k_only, PlaneKind::kKey, values), values);
}

TEST(HadamardStage, GivesTheSameRowByRow) {
  const auto transform = Make(7, 1, 0);
  ASSERT_NE(transform->rows(), nullptr);
  for (const auto kind : {PlaneKind::kKey, PlaneKind::kValue}) {
    const auto whole = Forward(*transform, kind, Values());
    auto rows = Values();
    Arena arena;
    const auto state =
        transform->rows()->Open(Plane(kind, arena), {kTokens, kHeads, kDim}, Direction::kForward);
    ASSERT_TRUE(state.has_value());
    for (std::uint32_t first = 0; first < kTokens; first += 2) {
      const std::uint32_t count = std::min(2U, kTokens - first);
      const RealPlane tile{&rows[std::size_t{first} * kHeads * kDim], count, kHeads, kDim};
      transform->rows()->ForwardRows(*state, first, tile);
    }
    EXPECT_EQ(rows, whole);
    transform->rows()->InverseRows(*state, 0, {rows.data(), kTokens, kHeads, kDim});
    EXPECT_EQ(rows, Inverse(*transform, kind, whole));
  }
}

}  // namespace
}  // namespace kvserve
