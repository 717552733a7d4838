#include "pipeline/plane_floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

using testing::MakeChunk;
using testing::MakeGeometry;
using testing::PlaneValues;
using testing::StridedChunk;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(PlaneFloats, LoadsAndStoresAnyStrides) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (const testing::Layout layout : testing::kLayouts) {
      const auto geometry = MakeGeometry(dtype, {{3, 5, 7}});
      const KvBuffer chunk = MakeChunk(geometry, {0, 9});
      const StridedChunk strided(chunk.view(), layout);
      const auto k = PlaneValues(chunk.view().layers[0].k);
      const auto v = PlaneValues(chunk.view().layers[0].v);
      EXPECT_EQ(PlaneValues(strided.const_view().layers[0].k), k);
      EXPECT_EQ(PlaneValues(strided.const_view().layers[0].v), v);
      const StridedChunk stored(chunk.view(), layout, false);
      EXPECT_TRUE(StoreFloats(k, stored.view().layers[0].k));
      EXPECT_TRUE(StoreFloats(v, stored.view().layers[0].v));
      EXPECT_EQ(testing::Difference(chunk.view(), stored.const_view()), "");
    }
  }
}

// Shapes beyond one block of a transposed plane, and any cut between rows.
TEST(PlaneFloats, LoadsAndStoresRowsOfAnyStrides) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (const testing::Layout layout : testing::kLayouts) {
      const KvBuffer chunk = MakeChunk(MakeGeometry(dtype, {{2, 67, 128}}), {0, 75});
      const StridedChunk strided(chunk.view(), layout);
      const StridedChunk stored(chunk.view(), layout, false);
      for (const bool is_key : {true, false}) {
        const auto plane = [&](const auto& view) {
          return is_key ? view.layers[0].k : view.layers[0].v;
        };
        const auto expected = PlaneValues(plane(chunk.view()));
        std::vector<float> rows(expected.size());
        for (std::uint32_t first = 0; first < 75; first += 34) {
          const std::uint32_t tokens = std::min(34U, 75 - first);
          const std::size_t columns = expected.size() / 75;
          const auto part = std::span(rows).subspan(first * columns, tokens * columns);
          EXPECT_TRUE(LoadRows(plane(strided.const_view()), first, tokens, part));
          EXPECT_TRUE(StoreRows(part, plane(stored.view()), first, tokens));
        }
        EXPECT_EQ(rows, expected);
      }
      EXPECT_EQ(testing::Difference(chunk.view(), stored.const_view()), "");
    }
  }
}

TEST(PlaneFloats, RowsTellWhetherTheirValuesAreFinite) {
  for (const testing::Layout layout : testing::kLayouts) {
    KvBuffer chunk = MakeChunk(MakeGeometry(DType::kBFloat16, {{2, 70, 70}}), {0, 9});
    testing::SetValue(chunk.view().layers[0].k, 5, 1, 69, kInfinity);
    const StridedChunk strided(std::as_const(chunk).view(), layout);
    std::vector<float> rows(9 * 140);
    const auto load = [&](std::uint32_t first, std::uint32_t tokens) {
      return LoadRows(strided.const_view().layers[0].k, first, tokens,
                      std::span(rows).first(std::size_t{tokens} * 140));
    };
    EXPECT_TRUE(load(0, 5));
    EXPECT_FALSE(load(0, 9));
    EXPECT_FALSE(load(5, 1));
    EXPECT_TRUE(load(6, 3));
    EXPECT_TRUE(load(9, 0));
    rows.assign(9 * 140, 1.0F);
    EXPECT_TRUE(StoreRows(rows, strided.view().layers[0].v, 0, 9));
    rows[7 * 140 + 69] = std::nanf("");
    EXPECT_FALSE(StoreRows(rows, strided.view().layers[0].v, 0, 9));
  }
}

TEST(PlaneFloats, NeverStoresInfinityForWhatIsTooLarge) {
  const float huge = std::numeric_limits<float>::max();
  const std::vector<float> values = {1.0F, 65520.0F, -1e30F, huge, -huge, kInfinity, -kInfinity};
  for (const auto& [dtype, largest] :
       {std::pair(DType::kFloat16, 65504.0F), std::pair(DType::kBFloat16, 0x1.FEp127F),
        std::pair(DType::kFloat32, huge)}) {
    for (const bool with_infinity : {false, true}) {
      const auto dim = static_cast<std::uint32_t>(with_infinity ? 7 : 5);
      KvBuffer buffer = MakeChunk(MakeGeometry(dtype, {{1, dim, 0}}), {0, 1});
      EXPECT_TRUE(StoreFloats(std::span(values).first(dim), buffer.view().layers[0].k));
      const auto stored = PlaneValues(std::as_const(buffer).view().layers[0].k);
      EXPECT_EQ(stored[0], 1.0F);
      EXPECT_FALSE(FindNonFinite(stored)) << DTypeName(dtype);
      EXPECT_EQ(stored[3], largest);
      EXPECT_EQ(stored[4], -largest);
      EXPECT_EQ(stored.back(), -largest);
    }
  }
  KvBuffer half = MakeChunk(MakeGeometry(DType::kFloat16, {{1, 2, 0}}), {0, 1});
  EXPECT_TRUE(StoreFloats(std::span(values).subspan(1, 2), half.view().layers[0].k));
  EXPECT_EQ(PlaneValues(std::as_const(half).view().layers[0].k),
            (std::vector<float>{65504.0F, -65504.0F}));
}

TEST(PlaneFloats, StoresNothingWhenAValueIsNotANumber) {
  KvBuffer buffer = MakeChunk(MakeGeometry(DType::kBFloat16, {{1, 4, 0}}), {0, 1});
  const auto before = PlaneValues(std::as_const(buffer).view().layers[0].k);
  const std::vector<float> values = {1.0F, kInfinity, std::nanf(""), 2.0F};
  EXPECT_FALSE(StoreFloats(values, buffer.view().layers[0].k));
  EXPECT_EQ(PlaneValues(std::as_const(buffer).view().layers[0].k), before);
}

TEST(PlaneFloats, FindsTheFirstValueThatIsNotFinite) {
  std::vector<float> values(1000, 3.0e38F);
  EXPECT_FALSE(FindNonFinite(values));
  values[777] = -kInfinity;
  EXPECT_EQ(FindNonFinite(values), 777U);
  values[500] = std::nanf("");
  EXPECT_EQ(FindNonFinite(values), 500U);
  EXPECT_FALSE(FindNonFinite({}));
}

TEST(PlaneFloats, FindsTheFirstCoefficientThatIsTooLarge) {
  std::vector<float> values(1000, kLargestCoefficient);
  values[3] = -kLargestCoefficient;
  EXPECT_TRUE(AllBounded(values));
  EXPECT_FALSE(FindUnbounded(values));
  for (const float value : {std::nextafter(kLargestCoefficient, HUGE_VALF), -0x1p101F,
                            std::numeric_limits<float>::quiet_NaN(), -HUGE_VALF}) {
    values[700] = value;
    EXPECT_FALSE(AllBounded(values)) << value;
    EXPECT_EQ(FindUnbounded(values), 700U) << value;
  }
}

}  // namespace
}  // namespace kvserve
