#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kvserve/paged.h"
#include "paged/testing/paged_sample.h"

namespace kvserve {
namespace {

using testing::Geometry;
using testing::ReadTokens;
using testing::SampleCache;

constexpr PagedLayout kLayouts[] = {PagedLayout::kNhd, PagedLayout::kHnd, PagedLayout::kVllmCpu};
constexpr DType kDTypes[] = {DType::kFloat8E4M3FN, DType::kUint8, DType::kFloat16, DType::kBFloat16,
                             DType::kFloat32};

// All bytes of a buffer's planes, in the order of ReadTokens.
std::vector<std::byte> Contents(const KvBuffer& kv) {
  std::vector<std::byte> bytes;
  for (const auto& layer : kv.view().layers) {
    for (const ConstPlaneView& plane : {layer.k, layer.v}) {
      const std::size_t count = plane.values() * DTypeBytes(plane.dtype);
      bytes.insert(bytes.end(), plane.data, plane.data + count);
    }
  }
  return bytes;
}

struct Sizes {
  std::uint32_t from_block;
  std::uint32_t to_block;
  TokenRange tokens;
};

// Out of one engine's blocks and into another's, with other blocks around them that stay as they
// are.
void ExpectCarried(const KvGeometry& geometry, PagedLayout from_layout, PagedLayout to_layout,
                   const Sizes& sizes) {
  const std::uint32_t total = sizes.tokens.end;
  SampleCache from(geometry, from_layout, sizes.from_block, 2 * (total / sizes.from_block) + 3, 1);
  SampleCache to(geometry, to_layout, sizes.to_block, 2 * (total / sizes.to_block) + 3, 2);
  const auto from_tables = from.NewTables(total);
  const auto to_tables = to.NewTables(total);
  KvBuffer kv;
  ASSERT_TRUE(kv.Resize(geometry, sizes.tokens, total));
  ASSERT_TRUE(GatherTokens(from.cache(), from_tables, sizes.tokens, kv.view()));
  const auto wanted = ReadTokens(from.cache(), from_tables, sizes.tokens, total);
  ASSERT_TRUE(Contents(kv) == wanted);

  std::vector<std::byte> expected = to.bytes();
  const auto places = testing::Places(to.cache(), to_tables, sizes.tokens, total);
  for (std::size_t i = 0; i < places.size(); ++i) {
    expected[static_cast<std::size_t>(places[i] - to.bytes().data())] = wanted[i];
  }
  ASSERT_TRUE(ScatterTokens(std::as_const(kv).view(), sizes.tokens, to_tables, to.cache()));
  EXPECT_TRUE(to.bytes() == expected);
}

constexpr Sizes kSizes[] = {{128, 16, {0, 300}},    // many small blocks, the last ones partial
                            {16, 128, {0, 300}},    //
                            {16, 16, {37, 91}},     // from the middle of a block
                            {128, 16, {130, 131}},  // one token
                            {7, 5, {3, 40}}};

TEST(PagedCopy, CarriesEveryBitBetweenLayouts) {
  const std::vector<LayerGeometry> layers = {{.kv_heads = 2, .k_dim = 20, .v_dim = 20},
                                             {.kv_heads = 1, .k_dim = 33, .v_dim = 33}};
  for (const DType dtype : kDTypes) {
    for (const PagedLayout from : kLayouts) {
      for (const PagedLayout to : kLayouts) {
        for (const Sizes& sizes : kSizes) {
          SCOPED_TRACE(std::string(DTypeName(dtype)) + " " +
                       std::to_string(static_cast<int>(from)) + " to " +
                       std::to_string(static_cast<int>(to)) + ", blocks of " +
                       std::to_string(sizes.from_block));
          ExpectCarried(Geometry(dtype, layers), from, to, sizes);
        }
      }
    }
  }
}

TEST(PagedCopy, CarriesUnequalDimsSinglePlanesAndOddHeads) {
  const std::vector<LayerGeometry> layers = {{.kv_heads = 3, .k_dim = 17, .v_dim = 11},
                                             {.kv_heads = 1, .k_dim = 576, .v_dim = 0},
                                             {.kv_heads = 5, .k_dim = 1, .v_dim = 1}};
  for (const PagedLayout from : {PagedLayout::kNhd, PagedLayout::kHnd}) {
    for (const Sizes& sizes : kSizes) {
      ExpectCarried(Geometry(DType::kBFloat16, layers), from, PagedLayout::kHnd, sizes);
    }
  }
}

// Blocks before the window are not held, on either side.
TEST(PagedCopy, LeavesOutWhatIsBeforeAWindow) {
  const auto geometry =
      Geometry(DType::kFloat16, {{.kv_heads = 2, .k_dim = 16, .v_dim = 16},
                                 {.kv_heads = 2, .k_dim = 16, .v_dim = 16, .window_tokens = 40}});
  SampleCache from(geometry, PagedLayout::kVllmCpu, 32, 40, 1);
  SampleCache to(geometry, PagedLayout::kNhd, 16, 60, 2);
  const auto from_tables = from.NewTables(200, 40);
  const auto to_tables = to.NewTables(200, 40);
  ASSERT_EQ(to_tables[1][9], kNoBlock);
  ASSERT_NE(to_tables[1][10], kNoBlock);
  KvBuffer kv;
  ASSERT_TRUE(kv.Resize(geometry, {0, 200}, 200));
  ASSERT_TRUE(GatherTokens(from.cache(), from_tables, {0, 200}, kv.view()));
  ASSERT_TRUE(ScatterTokens(std::as_const(kv).view(), {0, 200}, to_tables, to.cache()));
  EXPECT_TRUE(ReadTokens(from.cache(), from_tables, {0, 200}, 200) ==
              ReadTokens(to.cache(), to_tables, {0, 200}, 200));
}

// Parts of a view, gathered piece by piece as an engine's steps yield them.
TEST(PagedCopy, FillsAViewPieceByPiece) {
  const auto geometry = Geometry(
      DType::kFloat16, std::vector<LayerGeometry>(3, {.kv_heads = 2, .k_dim = 8, .v_dim = 8}));
  SampleCache from(geometry, PagedLayout::kHnd, 16, 20, 1);
  const auto tables = from.NewTables(100);
  KvBuffer kv;
  ASSERT_TRUE(kv.Resize(geometry, {32, 96}, 100));
  for (const TokenRange piece : {TokenRange{0, 50}, TokenRange{50, 51}, TokenRange{51, 1000}}) {
    for (std::size_t layer = 0; layer < 3; ++layer) {
      KvView view = kv.view();
      view.layers = {view.layers[layer]};
      ASSERT_TRUE(GatherTokens(from.cache(), tables, piece, view));
    }
  }
  EXPECT_TRUE(Contents(kv) == ReadTokens(from.cache(), tables, {32, 96}, 100));
}

TEST(PagedCopy, RefusesBeforeAnythingIsCopied) {
  const std::vector<LayerGeometry> layers(2, {.kv_heads = 2, .k_dim = 8, .v_dim = 8});
  const auto geometry = Geometry(DType::kFloat16, layers);
  SampleCache sample(geometry, PagedLayout::kVllmCpu, 16, 8);
  const auto good = sample.NewTables(64);
  KvBuffer kv;
  ASSERT_TRUE(kv.Resize(geometry, {0, 64}, 64));
  for (const auto& layer : kv.view().layers) {
    std::memset(layer.k.data, 0x5A, layer.k.values() * 2);
    std::memset(layer.v.data, 0x5A, layer.v.values() * 2);
  }
  const auto before = sample.bytes();
  const auto held = Contents(kv);
  const auto refused = [&](const std::vector<BlockTable>& tables, const KvView& view,
                           TokenRange tokens = {0, 64}) {
    ConstKvView reading = std::as_const(kv).view();
    reading.geometry = view.geometry;
    const Status gathered = GatherTokens(sample.cache(), tables, tokens, view);
    const Status scattered = ScatterTokens(reading, tokens, tables, sample.cache());
    EXPECT_TRUE(sample.bytes() == before);
    EXPECT_TRUE(Contents(kv) == held);
    return !gathered && gathered.error().code == ErrorCode::kInvalidArgument && !scattered &&
           scattered.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({}, kv.view()));
  for (const std::uint32_t block : {8U, 0x7FFFFFFFU, 0xFFFFFFFEU, kNoBlock}) {
    auto tables = good;
    tables[0][3] = block;
    EXPECT_TRUE(refused(tables, kv.view())) << block;
  }
  auto shorter = good;
  shorter[0].pop_back();
  EXPECT_TRUE(refused(shorter, kv.view()));
  EXPECT_TRUE(refused(good, kv.view(), {10, 5}));
  KvView foreign = kv.view();
  const auto other = Geometry(DType::kBFloat16, layers);
  foreign.geometry = &other;
  EXPECT_TRUE(refused(good, foreign));
  sample.cache().layers[1].group = 1;
  EXPECT_TRUE(refused(good, kv.view()));
}

}  // namespace
}  // namespace kvserve
