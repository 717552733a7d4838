#include "calibration/channel_moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/token_slice.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

using testing::MakeChunk;
using testing::MakeGeometry;
using testing::PlaneValues;
using testing::SetValue;

const std::vector<testing::LayerShape> kShapes = {{.heads = 2, .k_dim = 8, .v_dim = 4},
                                                  {.heads = 1, .k_dim = 6, .v_dim = 0}};

ConstKvView ViewOf(const KvBuffer& chunk) {
  return chunk.view();
}

// Mean and deviation of one channel over rows [first, end) by the plainest two passes.
std::pair<double, double> Plain(const std::vector<float>& values, std::size_t columns,
                                std::size_t first, std::size_t channel) {
  double sum = 0;
  const std::size_t rows = values.size() / columns;
  for (std::size_t r = first; r < rows; ++r) sum += values[r * columns + channel];
  const double mean = sum / static_cast<double>(rows - first);
  double squares = 0;
  for (std::size_t r = first; r < rows; ++r) {
    squares += std::pow(values[r * columns + channel] - mean, 2);
  }
  return {mean, std::sqrt(squares / static_cast<double>(rows - first))};
}

TEST(ChannelMoments, AreThoseOfAllTokensButTheFirst) {
  const auto geometry = MakeGeometry(DType::kFloat32, kShapes);
  const KvBuffer chunk = MakeChunk(geometry, {0, 40});
  ChannelMoments moments(geometry);
  for (const TokenRange part : {TokenRange{0, 1}, {1, 7}, {7, 30}, {30, 40}}) {
    ASSERT_TRUE(moments.Add(SliceTokens(ViewOf(chunk), part)));
  }
  EXPECT_EQ(moments.tokens(), 39U);
  const auto statistics = moments.Statistics();
  ASSERT_EQ(statistics.size(), 4U);
  EXPECT_TRUE(statistics[3].mean.empty());  // a single plane has no V
  const auto view = ViewOf(chunk);
  const ConstPlaneView planes[] = {view.layers[0].k, view.layers[0].v, view.layers[1].k};
  for (std::size_t p = 0; p < 3; ++p) {
    const auto values = PlaneValues(planes[p]);
    const std::size_t columns = planes[p].heads * planes[p].dim;
    ASSERT_EQ(statistics[p].mean.size(), columns);
    for (std::size_t c = 0; c < columns; ++c) {
      const auto [mean, scale] = Plain(values, columns, 1, c);
      EXPECT_NEAR(statistics[p].mean[c], mean, 1e-6 * std::abs(mean) + 1e-7) << p << " " << c;
      EXPECT_NEAR(statistics[p].scale[c], scale, 1e-6 * scale) << p << " " << c;
    }
  }
}

TEST(ChannelMoments, ASinkInTokenZeroChangesNothing) {
  const auto geometry = MakeGeometry(DType::kFloat16, kShapes);
  KvBuffer chunk = MakeChunk(geometry, {0, 16});
  ChannelMoments before(geometry);
  ASSERT_TRUE(before.Add(ViewOf(chunk)));
  SetValue(chunk.view().layers[0].k, 0, 1, 3, 20000.0F);
  SetValue(chunk.view().layers[0].v, 0, 0, 0, std::numeric_limits<float>::quiet_NaN());
  ChannelMoments after(geometry);
  ASSERT_TRUE(after.Add(ViewOf(chunk)));
  EXPECT_EQ(after.Statistics()[0].mean, before.Statistics()[0].mean);
  EXPECT_EQ(after.Statistics()[0].scale, before.Statistics()[0].scale);
}

// The naive sum of squares loses this deviation entirely in float, and half its digits in double.
TEST(ChannelMoments, AMeanFarBeyondTheDeviationCostsNoDigits) {
  const auto geometry = MakeGeometry(DType::kFloat32, {{.heads = 1, .k_dim = 2, .v_dim = 2}});
  KvBuffer chunk = MakeChunk(geometry, {0, 1025});
  for (std::uint32_t t = 0; t < 1025; ++t) {
    SetValue(chunk.view().layers[0].k, t, 0, 0, 1e6F + (t % 2 == 0 ? 0.25F : -0.25F));
  }
  ChannelMoments moments(geometry);
  ASSERT_TRUE(moments.Add(ViewOf(chunk)));
  EXPECT_EQ(moments.Statistics()[0].mean[0], 1e6F);
  EXPECT_NEAR(moments.Statistics()[0].scale[0], 0.25, 1e-9);
}

TEST(ChannelMoments, ScalesAreAlwaysPositive) {
  const auto geometry = MakeGeometry(DType::kFloat32, {{.heads = 1, .k_dim = 4, .v_dim = 4}});
  KvBuffer chunk = MakeChunk(geometry, {0, 33});
  for (std::uint32_t t = 0; t < 33; ++t) {
    SetValue(chunk.view().layers[0].k, t, 0, 2, 7.0F);  // one constant channel
    for (std::uint32_t d = 0; d < 4; ++d) SetValue(chunk.view().layers[0].v, t, 0, d, 3.0F);
  }
  ChannelMoments moments(geometry);
  ASSERT_TRUE(moments.Add(ViewOf(chunk)));
  const auto statistics = moments.Statistics();
  double sum = 0;
  for (const std::size_t c : {std::size_t{0}, std::size_t{1}, std::size_t{3}})
    sum += std::pow(statistics[0].scale[c], 2);
  EXPECT_NEAR(statistics[0].scale[2], std::sqrt(sum / 4) / 1024, 1e-6);
  EXPECT_EQ(statistics[0].mean[2], 7.0F);
  EXPECT_EQ(statistics[1].scale, std::vector<float>(4, 1.0F));
}

TEST(ChannelMoments, RefusesWhatHasNoStatistics) {
  const auto geometry = MakeGeometry(DType::kFloat16, kShapes);
  KvBuffer chunk = MakeChunk(geometry, {4, 12});
  ChannelMoments moments(geometry);
  SetValue(chunk.view().layers[1].k, 3, 0, 2, std::numeric_limits<float>::infinity());
  const auto infinite = moments.Add(ViewOf(chunk));
  ASSERT_FALSE(infinite);
  EXPECT_EQ(infinite.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(infinite.error().message.rfind("layer 1 K: ", 0), 0U) << infinite.error().message;
  const auto other = MakeGeometry(DType::kBFloat16, kShapes);
  const KvBuffer other_chunk = MakeChunk(other, {4, 12});
  const auto mismatch = moments.Add(ViewOf(other_chunk));
  ASSERT_FALSE(mismatch);
  EXPECT_EQ(mismatch.error().code, ErrorCode::kMismatch);
}

TEST(ChannelMoments, PlanesOfOneTokenHaveNoStatistics) {
  const auto geometry = MakeGeometry(DType::kFloat16, kShapes);
  const KvBuffer chunk = MakeChunk(geometry, {0, 2});
  ChannelMoments moments(geometry);
  ASSERT_TRUE(moments.Add(ViewOf(chunk)));
  EXPECT_EQ(moments.tokens(), 1U);
  for (const auto& plane : moments.Statistics()) EXPECT_TRUE(plane.mean.empty());
}

}  // namespace
}  // namespace kvserve
