#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "base/plane_bytes.h"
#include "kvserve/view.h"

namespace kvserve {
namespace {

KvGeometry TwoLayers(DType dtype) {
  KvGeometry geometry;
  geometry.dtype = dtype;
  geometry.layers = {{.kv_heads = 2, .k_dim = 3, .v_dim = 5},
                     {.kv_heads = 1, .k_dim = 2, .v_dim = 0, .window_tokens = 4}};
  return geometry;
}

KvBuffer Numbered(DType dtype) {
  KvBuffer buffer;
  EXPECT_TRUE(buffer.Resize(TwoLayers(dtype), {0, 10}, 10));
  for (const auto& layer : buffer.view().layers) {
    for (const PlaneView& plane : {layer.k, layer.v}) {
      for (std::uint64_t i = 0; i < plane.values() * DTypeBytes(dtype); ++i) {
        plane.data[i] = static_cast<std::byte>(i * 7 + layer.layer);
      }
    }
  }
  return buffer;
}

// The same shapes in memory of its own, axes in the order [head, dim, token] with room between.
class Transposed {
 public:
  explicit Transposed(const KvView& like) : view_(like) {
    for (LayerView& layer : view_.layers) {
      for (PlaneView* plane : {&layer.k, &layer.v}) {
        if (plane->data == nullptr) continue;
        auto& memory = memory_.emplace_back(2 * plane->values() * DTypeBytes(plane->dtype));
        plane->data = memory.data();
        plane->token_stride = 2;
        plane->dim_stride = std::int64_t{2} * plane->tokens;
        plane->head_stride = plane->dim_stride * plane->dim;
      }
    }
  }
  [[nodiscard]] const KvView& view() const { return view_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  KvView view_;
};

void ExpectEqual(const ConstKvView& a, const ConstKvView& b) {
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    for (const auto& [x, y] :
         {std::pair(a.layers[i].k, b.layers[i].k), std::pair(a.layers[i].v, b.layers[i].v)}) {
      std::vector<std::byte> left(x.values() * DTypeBytes(x.dtype));
      std::vector<std::byte> right(left.size());
      GatherBytes(x, left);
      GatherBytes(y, right);
      EXPECT_EQ(left, right) << "layer " << i;
    }
  }
}

TEST(CopyKv, KeepsEveryBitBetweenAnyStrides) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32, DType::kFloat8E4M3FN}) {
    KvBuffer source = Numbered(dtype);
    const Transposed first(source.view());
    const Transposed second(source.view());
    KvBuffer back;
    ASSERT_TRUE(back.Resize(TwoLayers(dtype), {0, 10}, 10));
    ASSERT_TRUE(CopyKv(std::as_const(source).view(), first.view()));
    ASSERT_TRUE(CopyKv(ReadOnly(first.view()), second.view()));
    ASSERT_TRUE(CopyKv(ReadOnly(second.view()), back.view()));
    ExpectEqual(std::as_const(source).view(), ReadOnly(second.view()));
    ExpectEqual(std::as_const(source).view(), std::as_const(back).view());
  }
}

TEST(CopyKv, RefusesViewsThatDiffer) {
  const KvBuffer source = Numbered(DType::kFloat16);
  const auto message = [&](const KvView& to) {
    const Status status = CopyKv(source.view(), to);
    EXPECT_FALSE(status);
    if (!status) {
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    }
    return status ? std::string() : status.error().message;
  };
  KvBuffer other;
  ASSERT_TRUE(other.Resize(TwoLayers(DType::kBFloat16), {0, 10}, 10));
  EXPECT_NE(message(other.view()).find("geometry"), std::string::npos);
  ASSERT_TRUE(other.Resize(TwoLayers(DType::kFloat16), {0, 9}, 9));
  EXPECT_NE(message(other.view()).find("range of tokens"), std::string::npos);
  ASSERT_TRUE(other.Resize(TwoLayers(DType::kFloat16), {0, 10}, 11));
  EXPECT_NE(message(other.view()).find("layer 1"), std::string::npos);
  KvView fewer = other.view();
  fewer.layers.pop_back();
  EXPECT_NE(message(fewer).find("layers"), std::string::npos);
}

}  // namespace
}  // namespace kvserve
