// What the split is worth on values shaped like a cache; that it is exact is tested over the table.
#include <gtest/gtest.h>

#include <random>

#include "kernels/convert/convert.h"
#include "kvserve/codec.h"

namespace kvserve {
namespace {

// Gaussian values whose channels differ in scale, as keys and values of real models do.
KvBuffer MakeCache(DType dtype, double octaves) {
  KvGeometry geometry;
  geometry.dtype = dtype;
  geometry.layers.assign(4, {.kv_heads = 3, .k_dim = 64, .v_dim = 64});
  KvBuffer cache;
  EXPECT_TRUE(cache.Resize(geometry, {0, 256}, 256));
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> scale(4 * 2 * 192);
  for (float& value : scale) value = std::exp2(static_cast<float>(octaves) * normal(random));
  std::size_t plane_index = 0;
  for (auto& layer : cache.view().layers) {
    for (auto* plane : {&layer.k, &layer.v}) {
      for (std::uint32_t t = 0; t < 256; ++t) {
        for (std::uint32_t c = 0; c < 192; ++c) {
          const float value = scale[plane_index * 192 + c] * normal(random);
          FromFloat(dtype, std::span(&value, 1), {plane->at(t, c / 64, c % 64), DTypeBytes(dtype)});
        }
      }
      ++plane_index;
    }
  }
  return cache;
}

double Ratio(const KvBuffer& cache) {
  std::vector<std::byte> frame;
  EXPECT_TRUE(EncodeFrame(cache.view(), ParseProfile("lossless|rans").value(), {}, frame));
  return static_cast<double>(RawBytes(cache.view())) / static_cast<double>(frame.size());
}

TEST(Lossless, ShrinksBFloat16ByAThird) {
  EXPECT_GE(Ratio(MakeCache(DType::kBFloat16, 1.0)), 1.48);
}

TEST(Lossless, ShrinksFloat16ByASixth) {
  EXPECT_GE(Ratio(MakeCache(DType::kFloat16, 1.0)), 1.18);
}

TEST(Lossless, ShrinksFloat32) {
  EXPECT_GE(Ratio(MakeCache(DType::kFloat32, 1.0)), 1.18);
}

// Two bits of exponent and the sign of zeros are about what there is.
TEST(Lossless, ShrinksFp8) {
  EXPECT_GE(Ratio(MakeCache(DType::kFloat8E4M3FN, 1.0)), 1.18);
  EXPECT_GE(Ratio(MakeCache(DType::kFloat8E4M3FNUZ, 1.0)), 1.18);
  EXPECT_GE(Ratio(MakeCache(DType::kFloat8E5M2, 1.0)), 1.35);
  EXPECT_GE(Ratio(MakeCache(DType::kFloat8E5M2FNUZ, 1.0)), 1.35);
}

// Levels per column make the ratio nearly independent of how much channels differ.
TEST(Lossless, ChannelsOfVeryDifferentScaleCostLittle) {
  const double same = Ratio(MakeCache(DType::kBFloat16, 0.0));
  const double different = Ratio(MakeCache(DType::kBFloat16, 3.0));
  EXPECT_GE(different, 0.98 * same);
  RecordProperty("same", std::to_string(same));
  RecordProperty("different", std::to_string(different));
}

}  // namespace
}  // namespace kvserve
