#include "base/plane_bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <vector>

namespace kvserve {
namespace {

// Two tokens, two heads, three channels in memory of 64 bytes, where byte i holds i.
PlaneView Plane(std::span<std::byte> memory, DType dtype, std::int64_t token_stride,
                std::int64_t head_stride, std::int64_t dim_stride) {
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
  return {memory.data(), dtype, Device::kHost, 2, 2, 3, token_stride, head_stride, dim_stride};
}

ConstPlaneView Const(const PlaneView& plane) {
  return {plane.data, plane.dtype,        plane.device,      plane.tokens,    plane.heads,
          plane.dim,  plane.token_stride, plane.head_stride, plane.dim_stride};
}

std::vector<int> Gathered(const PlaneView& plane) {
  std::vector<std::byte> bytes(plane.values() * DTypeBytes(plane.dtype));
  GatherBytes(Const(plane), bytes);
  std::vector<int> values;
  for (const std::byte byte : bytes) values.push_back(static_cast<int>(byte));
  return values;
}

TEST(PlaneBytes, FollowAnyStrides) {
  std::array<std::byte, 64> memory;
  std::vector<int> counting(24);
  std::iota(counting.begin(), counting.end(), 0);
  EXPECT_EQ(Gathered(Plane(memory, DType::kFloat16, 6, 3, 1)), counting);
  EXPECT_EQ(Gathered(Plane(memory, DType::kFloat16, 12, 4, 1)),
            (std::vector<int>{0,  1,  2,  3,  4,  5,  8,  9,  10, 11, 12, 13,
                              24, 25, 26, 27, 28, 29, 32, 33, 34, 35, 36, 37}));
  EXPECT_EQ(Gathered(Plane(memory, DType::kFloat16, 1, 6, 2)),
            (std::vector<int>{0, 1, 4, 5, 8,  9,  12, 13, 16, 17, 20, 21,
                              2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23}));
}

TEST(PlaneBytes, ScatterUndoesGatherAndTouchesNothingElse) {
  std::array<std::byte, 64> memory;
  std::array<std::byte, 64> before;
  std::array<std::byte, 48> bytes;
  for (const auto& strides : {std::array{6, 3, 1}, std::array{8, 4, 1}, std::array{1, 6, 2}}) {
    const auto plane = Plane(memory, DType::kFloat32, strides[0], strides[1], strides[2]);
    before = memory;
    GatherBytes(Const(plane), bytes);
    for (std::byte& byte : bytes) byte ^= std::byte{0xFF};
    ScatterBytes(bytes, plane);
    EXPECT_NE(memory, before);
    for (std::byte& byte : bytes) byte ^= std::byte{0xFF};
    ScatterBytes(bytes, plane);
    EXPECT_EQ(memory, before);
  }
}

// Shapes beyond one block of a plane whose channels are apart, in every order of strides.
TEST(PlaneBytes, PlanesOfManyBlocksKeepEveryElement) {
  constexpr std::uint32_t kTokens = 37;
  constexpr std::uint32_t kHeads = 2;
  constexpr std::uint32_t kDim = 130;
  std::vector<std::uint32_t> memory(std::size_t{3} * kTokens * kHeads * kDim);
  for (const auto& [token, head, dim] : {std::array{1, int{kTokens * kDim}, int{kTokens}},
                                         std::array{int{3 * kHeads * kDim}, int{3 * kDim}, 3},
                                         std::array{2, int{2 * kTokens}, int{4 * kTokens}}}) {
    for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
      const std::size_t size = DTypeBytes(dtype);
      std::iota(memory.begin(), memory.end(), 1U);
      const PlaneView plane{reinterpret_cast<std::byte*>(memory.data()),
                            dtype,
                            Device::kHost,
                            kTokens,
                            kHeads,
                            kDim,
                            token,
                            head,
                            dim};
      std::vector<std::byte> bytes(plane.values() * size);
      GatherBytes(Const(plane), bytes);
      std::size_t at = 0;
      for (std::uint32_t t = 0; t < kTokens; ++t) {
        for (std::uint32_t h = 0; h < kHeads; ++h) {
          for (std::uint32_t d = 0; d < kDim; ++d, at += size) {
            ASSERT_EQ(std::memcmp(&bytes[at], plane.at(t, h, d), size), 0) << t << h << d;
          }
        }
      }
      const auto before = memory;
      for (std::byte& byte : bytes) byte ^= std::byte{0xFF};
      ScatterBytes(bytes, plane);
      std::vector<std::byte> again(bytes.size());
      GatherBytes(Const(plane), again);
      EXPECT_TRUE(again == bytes);
      for (std::byte& byte : bytes) byte ^= std::byte{0xFF};
      ScatterBytes(bytes, plane);
      EXPECT_TRUE(memory == before);
    }
  }
}

TEST(PlaneBytes, TakeAPlaneWithoutTokens) {
  PlaneView plane;
  plane.heads = 2;
  plane.dim = 3;
  GatherBytes(Const(plane), {});
  ScatterBytes({}, plane);
}

}  // namespace
}  // namespace kvserve
