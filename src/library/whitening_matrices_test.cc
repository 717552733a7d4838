#include "library/whitening_matrices.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <thread>

#include "library/calibration_artefact.h"
#include "library/testing/sample_transform.h"

namespace kvserve {
namespace {

using testing::SampleWhitening;

// Largest deviation of inverse times forward from the identity, over groups.
double Deviation(const Whitening& whitening, std::span<const float> forward,
                 std::span<const float> inverse) {
  const std::size_t n = whitening.columns;
  double most = 0;
  for (std::size_t group = 0; group < inverse.size(); group += n * n) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double sum = i == j ? -1.0 : 0.0;
        for (std::size_t c = 0; c < n; ++c) {
          sum += double{inverse[group + i * n + c]} * forward[group + c * n + j];
        }
        most = std::max(most, std::fabs(sum));
      }
    }
  }
  return most;
}

TEST(WhiteningMatrices, ForwardIsTheInverseOfWhatIsStored) {
  for (const auto& [all, columns] : {std::pair{1, 1}, {2, 2}, {6, 3}, {48, 16}, {96, 96}}) {
    const Whitening whitening =
        SampleWhitening(static_cast<std::size_t>(all), static_cast<std::size_t>(columns));
    const auto inverse = DequantizedWhitening(whitening);
    const auto forward = InvertedWhitening(whitening);
    ASSERT_TRUE(forward) << all;
    EXPECT_LT(Deviation(whitening, *forward, inverse), 1e-5) << all << " in " << columns;
  }
}

// Rows of which the first has nothing in the first column: only with exchanges.
TEST(WhiteningMatrices, RowsAreExchanged) {
  Whitening whitening{3, {0, 0, 0}, {1, 2, 0.5F}, {0, 127, 3, 0, 0, -100, 50, 1, 1}};
  const auto forward = InvertedWhitening(whitening);
  ASSERT_TRUE(forward);
  EXPECT_LT(Deviation(whitening, *forward, DequantizedWhitening(whitening)), 1e-5);
}

TEST(WhiteningMatrices, SingularIsNoInverse) {
  EXPECT_FALSE(InvertedWhitening({2, {0, 0}, {1, 1}, {1, 2, 2, 4}}));
  EXPECT_FALSE(InvertedWhitening({2, {0, 0}, {1, 1}, {0, 2, 0, 4}}));
}

TEST(WhiteningMatrices, ArtefactKeepsThem) {
  CalibrationArtefact::Contents contents;
  contents.geometry.layers.assign(2, {.kv_heads = 2, .k_dim = 4, .v_dim = 4});
  testing::AddTransformSample(64, contents);
  contents.whitening[1] = {};
  contents.whitening[2].inverse.assign(contents.whitening[2].inverse.size(), 1);
  const CalibrationArtefact artefact(std::move(contents), {});
  const auto forward = artefact.whitening_forward(0, PlaneKind::kKey);
  const auto inverse = artefact.whitening_inverse(0, PlaneKind::kKey);
  ASSERT_TRUE(forward && inverse);
  EXPECT_LT(Deviation(*artefact.whitening(0, PlaneKind::kKey), *forward, *inverse), 1e-5);
  const auto again = artefact.whitening_forward(0, PlaneKind::kKey);
  EXPECT_EQ(again->data(), forward->data());
  EXPECT_EQ(artefact.whitening_forward(0, PlaneKind::kValue).error().code, ErrorCode::kMismatch);
  EXPECT_EQ(artefact.whitening_inverse(9, PlaneKind::kKey).error().code, ErrorCode::kMismatch);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(artefact.whitening_forward(1, PlaneKind::kKey).error().code, ErrorCode::kCorruptData);
  }
}

TEST(WhiteningMatrices, ManyThreadsGetTheSame) {
  CalibrationArtefact::Contents contents;
  contents.geometry.layers.assign(1, {.kv_heads = 2, .k_dim = 32, .v_dim = 32});
  testing::AddTransformSample(64, contents);
  const CalibrationArtefact artefact(std::move(contents), {});
  std::array<const float*, 4> found{};
  std::vector<std::thread> threads;
  for (auto& data : found) {
    threads.emplace_back([&] { data = artefact.whitening_forward(0, PlaneKind::kValue)->data(); });
  }
  for (auto& thread : threads) thread.join();
  for (const float* data : found) EXPECT_EQ(data, found[0]);
}

}  // namespace
}  // namespace kvserve
