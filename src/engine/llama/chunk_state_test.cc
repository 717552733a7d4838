#include "engine/llama/chunk_state.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvserve {
namespace {

constexpr std::uint32_t kWindow = 4;

// Layers 0 and 2 in the window cache, layer 1 in the all-token cache.
CacheLayout Layout() {
  CacheLayout layout;
  layout.geometry.dtype = DType::kBFloat16;
  const LayerGeometry window{2, 4, 8, kWindow, RopeStyle::kHalves, 1e4F};
  const LayerGeometry all{2, 4, 8, 0, RopeStyle::kHalves, 1e6F};
  layout.geometry.layers = {window, all, window};
  layout.slots = {{1}, {2, 0}};
  return layout;
}

void FillWithIndex(KvBuffer& buffer) {
  std::uint16_t next = 1;
  for (const LayerView& layer : buffer.view().layers) {
    for (const PlaneView& plane : {layer.k, layer.v}) {
      for (std::uint64_t i = 0; i < plane.values(); ++i, ++next) {
        std::memcpy(plane.data + i * 2, &next, 2);
      }
    }
  }
}

std::vector<std::byte> PlaneBytes(const ConstPlaneView& plane) {
  return {plane.data, plane.data + plane.values() * 2};
}

KvBuffer Chunk(const CacheLayout& layout, TokenRange tokens, std::uint32_t total) {
  KvBuffer buffer;
  EXPECT_TRUE(buffer.Resize(layout.geometry, tokens, total));
  FillWithIndex(buffer);
  return buffer;
}

const ConstKvView ViewOf(const KvBuffer& buffer) {
  return buffer.view();
}

void ExpectSame(const KvBuffer& a, const KvBuffer& b) {
  const auto left = a.view();
  const auto right = b.view();
  ASSERT_EQ(left.layers.size(), right.layers.size());
  for (std::size_t i = 0; i < left.layers.size(); ++i) {
    EXPECT_EQ(left.layers[i].tokens, right.layers[i].tokens);
    EXPECT_EQ(PlaneBytes(left.layers[i].k), PlaneBytes(right.layers[i].k)) << i;
    EXPECT_EQ(PlaneBytes(left.layers[i].v), PlaneBytes(right.layers[i].v)) << i;
  }
}

TEST(ChunkState, ComesBackTheSame) {
  const CacheLayout layout = Layout();
  for (const std::uint32_t total : {16U, 18U, 22U}) {  // all, part and nothing in the window
    const KvBuffer chunk = Chunk(layout, {10, 16}, total);
    ASSERT_TRUE(CheckChunk(ViewOf(chunk), layout));
    std::vector<std::vector<std::byte>> gathered;
    const auto state = StateOf(ViewOf(chunk), layout, 3, gathered);
    EXPECT_TRUE(gathered.empty());
    EXPECT_TRUE(CheckState(state, layout));
    std::vector<std::byte> blob;
    ASSERT_TRUE(WriteState(state, blob));
    const auto parsed = ParseState(blob, true);
    ASSERT_TRUE(parsed);
    KvBuffer out;
    ASSERT_TRUE(out.Resize(layout.geometry, {10, 16}, total));
    ASSERT_TRUE(CopyFromState(*parsed, layout, out));
    ExpectSame(chunk, out);
  }
}

TEST(ChunkState, CellsMayBeInAnyOrder) {
  const CacheLayout layout = Layout();
  const KvBuffer chunk = Chunk(layout, {0, 3}, 3);
  std::vector<std::vector<std::byte>> gathered;
  SequenceState state = StateOf(ViewOf(chunk), layout, 0, gathered);
  StateCache& cache = state.caches[0];
  cache.positions = {2, 0, 1};
  std::vector<std::vector<std::byte>> shuffled;
  for (auto* planes : {&cache.keys, &cache.values}) {
    StateRows& rows = planes->front();
    std::vector<std::byte>& copy = shuffled.emplace_back();
    for (const std::int32_t position : cache.positions) {
      const auto row = rows.rows.subspan(position * rows.row_bytes, rows.row_bytes);
      copy.insert(copy.end(), row.begin(), row.end());
    }
    rows.rows = copy;
  }
  KvBuffer out;
  ASSERT_TRUE(out.Resize(layout.geometry, {0, 3}, 3));
  ASSERT_TRUE(CopyFromState(state, layout, out));
  ExpectSame(chunk, out);
}

TEST(ChunkState, StridedPlanesAreGathered) {
  const CacheLayout layout = Layout();
  const KvBuffer chunk = Chunk(layout, {0, 3}, 3);
  ConstKvView view = chunk.view();
  ConstPlaneView& plane = view.layers[1].k;
  const std::vector<std::byte> wanted = PlaneBytes(plane);
  std::vector<std::byte> transposed(wanted.size());  // [dim, head, token]
  for (std::uint32_t t = 0; t < plane.tokens; ++t) {
    for (std::uint32_t h = 0; h < plane.heads; ++h) {
      for (std::uint32_t d = 0; d < plane.dim; ++d) {
        std::memcpy(transposed.data() + 2 * ((d * plane.heads + h) * plane.tokens + t),
                    plane.at(t, h, d), 2);
      }
    }
  }
  plane.data = transposed.data();
  plane.token_stride = 1;
  plane.head_stride = plane.tokens;
  plane.dim_stride = std::int64_t{plane.tokens} * plane.heads;
  std::vector<std::vector<std::byte>> gathered;
  const auto state = StateOf(view, layout, 0, gathered);
  ASSERT_EQ(gathered.size(), 1U);
  EXPECT_EQ(gathered[0], wanted);
  EXPECT_EQ(state.caches[0].keys[0].rows.data(), gathered[0].data());
}

TEST(ChunkState, MissingTokensAreNamed) {
  const CacheLayout layout = Layout();
  const KvBuffer chunk = Chunk(layout, {0, 3}, 3);
  std::vector<std::vector<std::byte>> gathered;
  const auto state = StateOf(ViewOf(chunk), layout, 0, gathered);
  KvBuffer out;
  ASSERT_TRUE(out.Resize(layout.geometry, {0, 5}, 5));
  const auto status = CopyFromState(state, layout, out);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
  EXPECT_NE(status.error().message.find("token 3"), std::string::npos) << status.error().message;
}

TEST(ChunkState, OtherGeometryIsAMismatch) {
  const CacheLayout layout = Layout();
  const auto code = [&](const CacheLayout& other) {
    const KvBuffer chunk = Chunk(other, {0, 3}, 3);
    return CheckChunk(ViewOf(chunk), layout).error().code;
  };
  CacheLayout other = layout;
  other.geometry.dtype = DType::kFloat16;
  EXPECT_EQ(code(other), ErrorCode::kMismatch);
  other = layout;
  other.geometry.layers[1].kv_heads = 1;
  EXPECT_EQ(code(other), ErrorCode::kMismatch);
  other = layout;
  other.geometry.layers[2].rope_theta = 1e5F;
  EXPECT_EQ(code(other), ErrorCode::kMismatch);
  other = layout;
  other.geometry.layers.pop_back();
  EXPECT_EQ(code(other), ErrorCode::kMismatch);
}

TEST(ChunkState, LayersMustBeCompleteAndAgree) {
  const CacheLayout layout = Layout();
  const auto code = [&](std::vector<KvBuffer::LayerTokens> layers) {
    KvBuffer buffer;
    EXPECT_TRUE(buffer.Resize(layout.geometry, {0, 6}, layers));
    const auto status = CheckChunk(ViewOf(buffer), layout);
    return status ? ErrorCode{} : status.error().code;
  };
  EXPECT_EQ(code({{0, {2, 6}}, {1, {0, 6}}, {2, {2, 6}}}), ErrorCode{});
  EXPECT_EQ(code({{0, {2, 6}}, {1, {0, 6}}}), ErrorCode::kMismatch);
  EXPECT_EQ(code({{0, {2, 6}}, {1, {1, 6}}, {2, {2, 6}}}), ErrorCode::kMismatch);
  EXPECT_EQ(code({{0, {2, 6}}, {1, {0, 6}}, {2, {3, 6}}}), ErrorCode::kMismatch);
  EXPECT_EQ(code({{0, {0, 4}}, {1, {0, 6}}, {2, {0, 4}}}), ErrorCode::kMismatch);
}

TEST(ChunkState, StateOfAnotherLayoutIsUnsupported) {
  const CacheLayout layout = Layout();
  const KvBuffer chunk = Chunk(layout, {0, 3}, 3);
  std::vector<std::vector<std::byte>> gathered;
  SequenceState state = StateOf(ViewOf(chunk), layout, 0, gathered);
  state.caches[1].keys[0].row_bytes = 4;
  EXPECT_EQ(CheckState(state, layout).error().code, ErrorCode::kUnsupported);
  state.caches.pop_back();
  EXPECT_EQ(CheckState(state, layout).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace kvserve
