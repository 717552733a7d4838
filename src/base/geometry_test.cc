#include "kvserve/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvserve {
namespace {

using ::testing::HasSubstr;

KvGeometry Llama(std::uint32_t layers) {
  return {DType::kBFloat16, std::vector<LayerGeometry>(layers, LayerGeometry{8, 128, 128})};
}

TEST(Geometry, NamesTheFieldThatIsWrong) {
  auto geometry = Llama(4);
  geometry.layers[3].k_dim = 0;
  EXPECT_THAT(CheckGeometry(geometry).error().message, HasSubstr("layer 3: k_dim 0"));
  geometry = Llama(4);
  geometry.layers[1].kv_heads = UINT32_MAX;
  EXPECT_THAT(CheckGeometry(geometry).error().message, HasSubstr("layer 1: kv_heads 4294967295"));
  geometry = Llama(0);
  EXPECT_THAT(CheckGeometry(geometry).error().message, HasSubstr("layers 0"));
}

TEST(Geometry, AcceptsEveryHeadDimAndSinglePlanes) {
  for (const std::uint32_t dim :
       {1U, 64U, 80U, 96U, 100U, 112U, 120U, 128U, 192U, 256U, 512U, 576U}) {
    auto geometry = Llama(2);
    geometry.layers[0].k_dim = dim;
    geometry.layers[0].v_dim = 0;
    EXPECT_TRUE(CheckGeometry(geometry)) << dim;
    EXPECT_EQ(LayerBytes(geometry.layers[0], geometry.dtype, 3), 3U * 8 * dim * 2);
  }
}

TEST(Geometry, WindowLayersHoldTheirWindowOnly) {
  LayerGeometry layer{4, 64, 64, 128};
  EXPECT_EQ(TokensHeld(layer, {0, 256}, 300), (TokenRange{172, 256}));
  EXPECT_EQ(TokensHeld(layer, {256, 300}, 300), (TokenRange{256, 300}));
  EXPECT_TRUE(TokensHeld(layer, {0, 128}, 300).empty());
  EXPECT_EQ(TokensHeld(layer, {0, 64}, 100), (TokenRange{0, 64}));
}

TEST(Geometry, ReservedDTypesAreRefusedByName) {
  const auto status = CheckDTypeSupported(DType::kFloat8E4M3FNUZ);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().message, HasSubstr("float8_e4m3fnuz"));
  EXPECT_NE(DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ);
}

}  // namespace
}  // namespace kvserve
