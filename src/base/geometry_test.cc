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

TEST(Geometry, UnknownDTypesAreRefusedByIdAndKnownOnesListed) {
  const auto status = CheckDTypeSupported(static_cast<DType>(9));
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().message, HasSubstr("id 9"));
  EXPECT_THAT(status.error().message, HasSubstr("float8_e4m3fnuz"));
  EXPECT_FALSE(CheckDTypeSupported(static_cast<DType>(0)));
}

// Ids are on the wire.
TEST(Geometry, DTypesKeepTheirIdsAndNames) {
  constexpr std::string_view kNames[] = {
      "float16",         "bfloat16",    "float32",         "float8_e4m3fn",
      "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "uint8"};
  for (std::size_t id = 1; id <= std::size(kNames); ++id) {
    const auto dtype = static_cast<DType>(id);
    EXPECT_EQ(DTypeName(dtype), kNames[id - 1]);
    EXPECT_EQ(ParseDType(kNames[id - 1]), dtype);
    EXPECT_TRUE(CheckDTypeSupported(dtype));
    EXPECT_EQ(DTypeBytes(dtype), id == 3 ? 4U : id < 3 ? 2U : 1U);
    EXPECT_EQ(DTypeHoldsNumbers(dtype), id < 8);
  }
}

}  // namespace
}  // namespace kvserve
