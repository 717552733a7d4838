#include "evaluation/speed/kv_error.h"

#include <gtest/gtest.h>

#include <utility>

#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

KvBuffer Constant(float k, float v) {
  const KvGeometry geometry = testing::MakeGeometry(DType::kFloat32, {{1, 2, 4}, {2, 3, 3}});
  KvBuffer buffer;
  EXPECT_TRUE(buffer.Resize(geometry, {0, 5}, 5));
  for (const auto& layer : buffer.view().layers) {
    for (std::uint32_t token = 0; token < 5; ++token) {
      for (std::uint32_t head = 0; head < layer.k.heads; ++head) {
        for (std::uint32_t d = 0; d < layer.k.dim; ++d)
          testing::SetValue(layer.k, token, head, d, k);
        for (std::uint32_t d = 0; d < layer.v.dim; ++d)
          testing::SetValue(layer.v, token, head, d, v);
      }
    }
  }
  return buffer;
}

TEST(KvError, IsRelativeToTheOriginalOfTheSamePlanes) {
  const KvBuffer original = Constant(2.0F, -4.0F);
  const KvBuffer decoded = Constant(2.5F, -4.0F);
  const auto error = MeasureError(original.view(), decoded.view());
  ASSERT_TRUE(error);
  EXPECT_DOUBLE_EQ(error->k_rms_relative, 0.25);
  EXPECT_EQ(error->v_rms_relative, 0.0);
}

TEST(KvError, OfNothingIsNothing) {
  const KvBuffer zero = Constant(0.0F, 0.0F);
  const auto error = MeasureError(zero.view(), zero.view());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->k_rms_relative, 0.0);
}

TEST(KvError, RefusesOtherShapes) {
  const KvBuffer a = Constant(1.0F, 1.0F);
  KvBuffer b;
  ASSERT_TRUE(b.Resize(testing::MakeGeometry(DType::kFloat32, {{1, 2, 4}, {2, 3, 4}}), {0, 5}, 5));
  const auto error = MeasureError(a.view(), std::as_const(b).view());
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvserve
