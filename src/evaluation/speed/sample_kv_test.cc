#include "evaluation/speed/sample_kv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "base/hash.h"
#include "evaluation/speed/kv_error.h"
#include "evaluation/speed/synthetic_kv.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

std::string Digest(const ConstKvView& view) {
  std::vector<std::byte> all;
  for (const auto& layer : view.layers) {
    for (const ConstPlaneView& plane : {layer.k, layer.v}) {
      all.insert(all.end(), plane.data, plane.data + plane.values() * DTypeBytes(plane.dtype));
    }
  }
  return Hash128(all).hex();
}

double Rms(const ConstPlaneView& plane, std::uint32_t token) {
  const auto values = testing::PlaneValues(plane);
  const std::size_t columns = std::size_t{plane.heads} * plane.dim;
  double sum = 0.0;
  for (std::size_t i = 0; i < columns; ++i) {
    const double value = values[token * columns + i];
    sum += value * value;
  }
  return std::sqrt(sum / static_cast<double>(columns));
}

// The frame is as old as the sample: this fails when a build decodes it to other values.
TEST(Sample, IsTheCapture) {
  KvBuffer sample;
  ASSERT_TRUE(LoadSample(DType::kFloat16, sample));
  EXPECT_EQ(sample.geometry().layers.size(), 30U);
  EXPECT_EQ(sample.tokens(), (TokenRange{0, 128}));
  EXPECT_EQ(RawBytes(std::as_const(sample).view()), 128U * 23'040);
  EXPECT_EQ(Digest(std::as_const(sample).view()), "e8f897ee2da86457223a61cd01c6b2ed");
}

TEST(Sample, AsBFloat16HasTheSameValuesRounded) {
  KvBuffer sample;
  KvBuffer rounded;
  ASSERT_TRUE(LoadSample(DType::kFloat16, sample));
  ASSERT_TRUE(LoadSample(DType::kBFloat16, rounded));
  EXPECT_EQ(rounded.geometry().dtype, DType::kBFloat16);
  EXPECT_EQ(rounded.geometry().layers, sample.geometry().layers);
  const auto error = MeasureError(std::as_const(sample).view(), std::as_const(rounded).view());
  ASSERT_TRUE(error);
  EXPECT_GT(error->v_rms_relative, 0.0);
  EXPECT_LT(error->v_rms_relative, 0x1p-9);
  EXPECT_LT(error->k_rms_relative, 0x1p-9);
}

TEST(Synthetic, HasTheShapeAndTheFeaturesThatItClaims) {
  KvGeometry geometry = LlamaGeometry();
  EXPECT_EQ(LayerBytes(geometry.layers[0], geometry.dtype, 1) * geometry.layers.size(), 131'072U);
  geometry.layers.resize(2);
  KvBuffer kv;
  ASSERT_TRUE(MakeSyntheticKv(geometry, 64, kv));
  const ConstKvView view = std::as_const(kv).view();
  EXPECT_GT(Rms(view.layers[0].k, 0), 1.3 * Rms(view.layers[0].k, 1)) << "sink";
  EXPECT_LT(Rms(view.layers[0].v, 0), 0.2 * Rms(view.layers[0].v, 1)) << "sink";
  double outliers = 0.0;
  double others = 0.0;
  const auto k = testing::PlaneValues(view.layers[0].k);
  for (std::size_t i = 0; i < k.size(); ++i) {
    // RoPE mixes channels i and i + 64, of which 5, 37, 69 and 101 are outliers.
    (i % 32 == 5 ? outliers : others) += double{k[i]} * double{k[i]} * (i % 32 == 5 ? 31 : 1);
  }
  EXPECT_GT(outliers, 30.0 * others);
  KvBuffer again;
  ASSERT_TRUE(MakeSyntheticKv(geometry, 64, again));
  EXPECT_EQ(testing::Difference(view, std::as_const(again).view()), "") << "deterministic";
}

}  // namespace
}  // namespace kvserve
