#include "kvserve/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kvserve {
namespace {

using ::testing::HasSubstr;

const KvGeometry kGeometry{DType::kFloat16, {{2, 64, 64}, {1, 576, 0}, {2, 96, 80, 16}}};

TEST(KvBuffer, LaysOutAlignedPlanes) {
  KvBuffer buffer;
  ASSERT_TRUE(buffer.Resize(kGeometry, {0, 40}, 40));
  const auto view = buffer.view();
  ASSERT_TRUE(CheckView(std::as_const(buffer).view()));
  ASSERT_EQ(view.layers.size(), 3U);
  EXPECT_EQ(view.layers[1].v.data, nullptr);
  EXPECT_EQ(view.layers[2].tokens, (TokenRange{24, 40}));
  for (const auto& layer : view.layers) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(layer.k.data) % 64, 0U);
    EXPECT_TRUE(layer.k.contiguous());
  }
  EXPECT_EQ(RawBytes(std::as_const(buffer).view()), 2U * (40 * 256 + 40 * 576 + 16 * 2 * 176));
}

// Blocks of the heap start at different distances from an aligned address.
TEST(KvBuffer, CopiesHaveTheSameElementsWhereverTheyLie) {
  const KvGeometry geometry{DType::kFloat16, {{1, 4, 2}}};
  KvBuffer buffer;
  ASSERT_TRUE(buffer.Resize(geometry, {0, 3}, 3));
  const auto fill = [](const PlaneView& plane, std::byte value) {
    std::fill_n(plane.data, 2 * plane.values(), value);
  };
  fill(buffer.view().layers[0].k, std::byte{1});
  fill(buffer.view().layers[0].v, std::byte{2});
  std::vector<KvBuffer> copies;
  copies.reserve(16);
  for (int i = 0; i < 16; ++i) copies.push_back(buffer);
  copies[3] = copies[4];
  for (const KvBuffer& copy : copies) {
    const auto layer = copy.view().layers[0];
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(layer.k.data) % 64, 0U);
    EXPECT_EQ(std::count(layer.k.data, layer.k.data + 24, std::byte{1}), 24);
    EXPECT_EQ(std::count(layer.v.data, layer.v.data + 12, std::byte{2}), 12);
  }
}

TEST(KvBuffer, RefusesMoreThanTheCap) {
  KvBuffer buffer;
  const KvBuffer::LayerTokens layers[] = {{0, {0, 1000}}};
  EXPECT_EQ(buffer.Resize(kGeometry, {0, 1000}, layers, 1024).error().code,
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(buffer.bytes(), 0U);
}

TEST(KvBuffer, RefusesRangesAndLayersThatNoViewMayHave) {
  KvBuffer buffer;
  EXPECT_EQ(buffer.Resize(kGeometry, {4, 3}, 4).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(buffer.Resize(kGeometry, {0, kMaxTokens + 1}, 4).error().code,
            ErrorCode::kInvalidArgument);
  const auto message = [&](std::vector<KvBuffer::LayerTokens> layers) {
    return buffer.Resize(kGeometry, {2, 6}, layers).error().message;
  };
  EXPECT_THAT(message({{1, {2, 6}}, {0, {2, 6}}}), HasSubstr("layer 0 is out of order"));
  EXPECT_THAT(message({{3, {2, 6}}}), HasSubstr("not among the model's 3"));
  EXPECT_THAT(message({{2, {1, 6}}}), HasSubstr("[1, 6) is not inside the chunk's [2, 6)"));
}

// Between what a vector can hold and what 64 bits can count: an error, not an exception.
TEST(KvBuffer, RefusesWhatNoMemoryCouldHold) {
  KvBuffer buffer;
  for (const std::size_t layers : {500U, 4096U}) {
    const KvGeometry huge{DType::kFloat32, {layers, {kMaxHeads, kMaxDim, kMaxDim}}};
    EXPECT_EQ(buffer.Resize(huge, {0, kMaxTokens}, kMaxTokens).error().code,
              ErrorCode::kResourceExhausted);
  }
}

TEST(CheckView, NamesTheFaultyPlane) {
  KvBuffer buffer;
  ASSERT_TRUE(buffer.Resize(kGeometry, {0, 4}, 4));
  auto view = std::as_const(buffer).view();
  view.layers[0].v.dim = 63;
  EXPECT_THAT(CheckView(view).error().message, HasSubstr("layer 0 V: shape [4, 2, 63]"));
  view = std::as_const(buffer).view();
  view.layers[2].k.dtype = DType::kBFloat16;
  EXPECT_THAT(CheckView(view).error().message, HasSubstr("layer 2 K: dtype bfloat16"));
  view = std::as_const(buffer).view();
  std::swap(view.layers[0], view.layers[1]);
  EXPECT_THAT(CheckView(view).error().message, HasSubstr("out of order"));
}

}  // namespace
}  // namespace kvserve
