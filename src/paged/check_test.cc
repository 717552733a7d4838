#include "paged/check.h"

#include <gtest/gtest.h>

#include <functional>

#include "paged/testing/paged_sample.h"

namespace kvserve {
namespace {

using testing::Geometry;
using testing::SampleCache;

KvGeometry TwoLayers() {
  return Geometry(DType::kFloat16, {{.kv_heads = 2, .k_dim = 4, .v_dim = 4},
                                    {.kv_heads = 1, .k_dim = 8, .v_dim = 0}});
}

TEST(CheckPagedCache, NamesTheFirstFault) {
  SampleCache sample(TwoLayers(), PagedLayout::kNhd, 16, 4);
  ASSERT_TRUE(CheckPagedCache(sample.cache()));
  const auto fault = [&](const std::function<void(PagedCache&)>& change) {
    PagedCache cache = sample.cache();
    change(cache);
    const Status status = CheckPagedCache(cache);
    EXPECT_FALSE(status.has_value());
    if (status) return std::string();
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    return status.error().message;
  };
  EXPECT_EQ(fault([](auto& c) { c.blocks = 0; }), "blocks 0 is outside 1..4294967294");
  EXPECT_EQ(fault([](auto& c) { c.block_tokens = 0; }), "block_tokens 0 is outside 1..65536");
  EXPECT_EQ(fault([](auto& c) { c.layers.pop_back(); }), "the cache has 1 layers, its geometry 2");
  EXPECT_EQ(fault([](auto& c) { c.layers[0].v.data = nullptr; }), "layer 0 V: no data");
  EXPECT_EQ(fault([](auto& c) { c.layers[1].k.data += 1; }),
            "layer 1 K: data is not aligned to its elements");
  for (const std::int64_t stride : {INT64_MAX, INT64_MIN, INT64_MAX / 3, INT64_MAX / 6}) {
    EXPECT_EQ(fault([&](auto& c) { c.layers[0].k.block_stride = stride; }),
              "layer 0 K: strides lead out of the address space");
    EXPECT_EQ(fault([&](auto& c) { c.layers[0].v.dim_stride = stride; }),
              "layer 0 V: strides lead out of the address space");
  }
  EXPECT_FALSE(fault([](auto& c) { c.geometry.layers.clear(); }).empty());
}

TEST(CheckPagedCache, LetsSinglePlanesGoWithoutValues) {
  SampleCache sample(TwoLayers(), PagedLayout::kHnd, 16, 4);
  EXPECT_EQ(sample.cache().layers[1].v.data, nullptr);
  EXPECT_TRUE(CheckPagedCache(sample.cache()));
}

TEST(CheckTable, RefusesBlocksThatAreNotThere) {
  SampleCache sample(TwoLayers(), PagedLayout::kNhd, 16, 4);
  const auto fault = [&](const std::vector<BlockTable>& tables, TokenRange tokens) {
    const Status status = CheckTable(sample.cache(), 0, tables, tokens);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(fault({{3, 0}}, {0, 32}), "");
  EXPECT_EQ(fault({}, {5, 5}), "");
  EXPECT_EQ(fault({{kNoBlock, 0}}, {16, 32}), "");
  EXPECT_EQ(fault({}, {0, 1}), "layer 0, group 0: there are block tables for 0 groups");
  EXPECT_EQ(fault({{3, 0}}, {0, 33}), "layer 0, group 0: token 32 is in block 2 of a table of 2");
  EXPECT_EQ(fault({{kNoBlock, 0}}, {15, 32}), "layer 0, group 0: block 0 is not held");
  EXPECT_EQ(fault({{3, 4}}, {0, 32}), "layer 0, group 0: block 1 is 4 of a cache of 4");
}

}  // namespace
}  // namespace kvserve
