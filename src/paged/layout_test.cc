#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "kvserve/paged.h"
#include "paged/testing/paged_sample.h"

namespace kvserve {
namespace {

constexpr LayerGeometry kShape{.kv_heads = 2, .k_dim = 3, .v_dim = 3};

// Offset in elements of (block, slot, head, dim) from the tensor's start.
std::int64_t Offset(const PagedPlane& plane, const std::byte* start, std::int64_t block,
                    std::int64_t slot, std::int64_t head, std::int64_t dim) {
  return (plane.data - start) / 2 + block * plane.block_stride + slot * plane.slot_stride +
         head * plane.head_stride + dim * plane.dim_stride;
}

TEST(PagedLayouts, PutElementsWhereTheEnginesDo) {
  std::vector<std::byte> memory(2 * 2 * 5 * 4 * 2 * 3);
  std::byte* start = memory.data();
  constexpr std::uint32_t kBlocks = 5;
  constexpr std::uint32_t kSlots = 4;
  const auto lay_out = [&](PagedLayout layout) {
    return LayOutLayer(layout, start, kShape, DType::kFloat16, kBlocks, kSlots).value();
  };
  // Block 3, slot 2, head 1, dim 1 of tensors [2, 5, 4, 2, 3], [2, 5, 2, 4, 3] and
  // [5, 2, 2 * 3 * 4].
  const auto nhd = lay_out(PagedLayout::kNhd);
  EXPECT_EQ(Offset(nhd.k, start, 3, 2, 1, 1), ((3 * 4 + 2) * 2 + 1) * 3 + 1);
  EXPECT_EQ(Offset(nhd.v, start, 3, 2, 1, 1), 5 * 4 * 2 * 3 + ((3 * 4 + 2) * 2 + 1) * 3 + 1);
  const auto hnd = lay_out(PagedLayout::kHnd);
  EXPECT_EQ(Offset(hnd.k, start, 3, 2, 1, 1), ((3 * 2 + 1) * 4 + 2) * 3 + 1);
  EXPECT_EQ(Offset(hnd.v, start, 3, 2, 1, 1), 5 * 4 * 2 * 3 + ((3 * 2 + 1) * 4 + 2) * 3 + 1);
  const auto cpu = lay_out(PagedLayout::kVllmCpu);
  EXPECT_EQ(Offset(cpu.k, start, 3, 2, 1, 1), (3 * 2 + 1) * 24 + 1 * 4 + 2);
  EXPECT_EQ(Offset(cpu.v, start, 3, 2, 1, 1), (3 * 2 + 1) * 24 + 12 + 2 * 3 + 1);
}

TEST(PagedLayouts, FillTheirMemoryOnce) {
  for (const auto layout : {PagedLayout::kNhd, PagedLayout::kHnd, PagedLayout::kVllmCpu}) {
    std::vector<std::byte> memory(2 * 2 * 5 * 4 * 2 * 3);
    const auto layer = LayOutLayer(layout, memory.data(), kShape, DType::kFloat16, 5, 4).value();
    std::set<std::int64_t> seen;
    for (const PagedPlane& plane : {layer.k, layer.v}) {
      for (int i = 0; i < 5 * 4 * 2 * 3; ++i) {
        seen.insert(Offset(plane, memory.data(), i / 24, i / 6 % 4, i / 3 % 2, i % 3));
      }
    }
    EXPECT_EQ(seen.size(), memory.size() / 2);
    EXPECT_EQ(*seen.rbegin(), static_cast<std::int64_t>(memory.size() / 2) - 1);
  }
}

TEST(PagedLayouts, SinglePlanesHaveNoValues) {
  std::vector<std::byte> memory(4096);
  const LayerGeometry latent{.kv_heads = 1, .k_dim = 72, .v_dim = 0};
  const auto layer =
      LayOutLayer(PagedLayout::kNhd, memory.data(), latent, DType::kFloat16, 2, 8).value();
  EXPECT_EQ(layer.v.data, nullptr);
  EXPECT_EQ(layer.k.block_stride, 8 * 72);
}

TEST(PagedLayouts, RefuseWhatTheyCannotBe) {
  std::byte memory[4096];
  const auto refused = [&](PagedLayout layout, std::byte* data, LayerGeometry shape,
                           std::uint32_t blocks, std::uint32_t slots) {
    const auto layer = LayOutLayer(layout, data, shape, DType::kFloat16, blocks, slots);
    return !layer && layer.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused(PagedLayout::kNhd, memory, kShape, 5, 4));
  EXPECT_TRUE(refused(PagedLayout::kNhd, nullptr, kShape, 5, 4));
  EXPECT_TRUE(refused(PagedLayout::kNhd, memory, kShape, 0, 4));
  EXPECT_TRUE(refused(PagedLayout::kNhd, memory, kShape, kNoBlock, 4));
  EXPECT_TRUE(refused(PagedLayout::kNhd, memory, kShape, 5, 0));
  EXPECT_TRUE(refused(PagedLayout::kNhd, memory, kShape, 5, 65537));
  EXPECT_TRUE(refused(PagedLayout::kNhd, memory, {.kv_heads = 0, .k_dim = 3, .v_dim = 3}, 5, 4));
  EXPECT_TRUE(
      refused(PagedLayout::kVllmCpu, memory, {.kv_heads = 1, .k_dim = 3, .v_dim = 4}, 5, 4));
  EXPECT_TRUE(refused(static_cast<PagedLayout>(9), memory, kShape, 5, 4));
}

}  // namespace
}  // namespace kvserve
