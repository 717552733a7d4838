#include "kernels/strided_copy/strided_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

enum class Order : std::uint8_t { kTokenHeadDim, kHeadTokenDim, kHeadDimToken, kTokenDimHead };
constexpr Order kOrders[] = {Order::kTokenHeadDim, Order::kHeadTokenDim, Order::kHeadDimToken,
                             Order::kTokenDimHead};

struct Shape {
  std::uint32_t tokens;
  std::uint32_t heads;
  std::uint32_t dim;
};

// A plane in memory of its own, with a gap of `pad` elements after its innermost rows.
class Plane {
 public:
  Plane(Shape shape, DType dtype, Order order, std::uint32_t pad) {
    const auto [tokens, heads, dim] = shape;
    view_ = {nullptr, dtype, Device::kHost, tokens, heads, dim};
    const std::int64_t inner = pad + (order == Order::kHeadDimToken   ? tokens
                                      : order == Order::kTokenDimHead ? heads
                                                                      : dim);
    const auto set = [&](std::int64_t token, std::int64_t head, std::int64_t d) {
      view_.token_stride = token;
      view_.head_stride = head;
      view_.dim_stride = d;
    };
    switch (order) {
      case Order::kTokenHeadDim: set(inner * heads, inner, 1); break;
      case Order::kHeadTokenDim: set(inner, inner * tokens, 1); break;
      case Order::kHeadDimToken: set(1, inner * dim, inner); break;
      case Order::kTokenDimHead: set(inner * dim, 1, inner); break;
    }
    bytes_.resize((view_.values() + std::size_t{pad} * tokens * heads * dim) * DTypeBytes(dtype),
                  std::byte{0xEE});
    view_.data = bytes_.data();
  }
  void Fill(unsigned seed) {
    std::mt19937 random(seed);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
  }
  [[nodiscard]] const PlaneView& view() const { return view_; }
  [[nodiscard]] ConstPlaneView read() const {
    return {view_.data, view_.dtype,        view_.device,      view_.tokens,    view_.heads,
            view_.dim,  view_.token_stride, view_.head_stride, view_.dim_stride};
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  PlaneView view_;
  std::vector<std::byte> bytes_;
};

void ExpectAsOracle(Shape shape, DType dtype, Order from_order, Order to_order, std::uint32_t pad) {
  Plane from(shape, dtype, from_order, pad);
  from.Fill(7);
  Plane wanted(shape, dtype, to_order, 2 * pad);
  Plane copied(shape, dtype, to_order, 2 * pad);
  CopyPlaneRef(from.read(), wanted.view());
  CopyPlane(from.read(), copied.view());
  // Gaps included: nothing outside of the plane is touched.
  EXPECT_TRUE(copied.bytes() == wanted.bytes())
      << shape.tokens << "x" << shape.heads << "x" << shape.dim << " " << DTypeName(dtype) << " "
      << static_cast<int>(from_order) << " to " << static_cast<int>(to_order);
}

TEST(StridedCopy, OracleKeepsElementsInTheirPlaces) {
  Plane from({3, 2, 5}, DType::kFloat16, Order::kHeadDimToken, 1);
  from.Fill(1);
  Plane to({3, 2, 5}, DType::kFloat16, Order::kTokenHeadDim, 0);
  CopyPlaneRef(from.read(), to.view());
  for (std::uint32_t token = 0; token < 3; ++token) {
    for (std::uint32_t head = 0; head < 2; ++head) {
      for (std::uint32_t d = 0; d < 5; ++d) {
        // [head, dim, token + gap] and [token, head, dim].
        EXPECT_EQ(std::memcmp(&from.bytes()[2 * ((head * 5 + d) * 4 + token)],
                              &to.bytes()[2 * ((token * 2 + head) * 5 + d)], 2),
                  0);
      }
    }
  }
}

TEST(StridedCopy, AgreesWithTheOracleInAllOrders) {
  const Shape shapes[] = {{1, 1, 1},    {1, 3, 64},   {16, 2, 64}, {16, 1, 576},
                          {7, 2, 8},    {8, 2, 7},    {9, 3, 9},   {15, 2, 17},
                          {17, 2, 100}, {128, 3, 80}, {33, 1, 130}};
  ForEachIsa([&] {
    for (const Shape& shape : shapes) {
      for (const DType dtype : {DType::kFloat8E5M2, DType::kBFloat16, DType::kFloat32}) {
        for (const Order from : kOrders) {
          for (const Order to : kOrders) {
            for (const std::uint32_t pad : {0U, 3U}) ExpectAsOracle(shape, dtype, from, to, pad);
          }
        }
      }
    }
  });
}

// Strides may be negative or zero: a reversed plane, one row for all tokens.
TEST(StridedCopy, FollowsAnyStrides) {
  ForEachIsa([] {
    std::vector<std::uint16_t> values(40);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i);
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    ConstPlaneView from{bytes + 2 * 39, DType::kFloat16, Device::kHost, 2, 2, 10, -20, -10, -1};
    std::vector<std::uint16_t> out(40);
    PlaneView to{reinterpret_cast<std::byte*>(out.data()),
                 DType::kFloat16,
                 Device::kHost,
                 2,
                 2,
                 10,
                 20,
                 10,
                 1};
    CopyPlane(from, to);
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(out[i], 39 - i);
    from = {bytes, DType::kFloat16, Device::kHost, 2, 2, 10, 0, 10, 1};
    CopyPlane(from, to);
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(out[i], i % 20);
  });
}

TEST(StridedCopy, TakesPlanesWithoutTokens) {
  CopyPlane({nullptr, DType::kFloat16, Device::kHost, 0, 2, 3},
            {nullptr, DType::kFloat16, Device::kHost, 0, 2, 3});
}

}  // namespace
}  // namespace kvserve
