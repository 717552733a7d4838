#include "kernels/predict_rows/predict_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

struct Sample {
  std::vector<std::int8_t> weights;
  std::vector<float> scale;
  std::vector<std::int16_t> in;  // [row][padded inputs]
};

// Weights and inputs at their limits in every third place.
Sample MakeSample(std::size_t inputs, std::size_t columns, std::size_t rows) {
  std::mt19937 random(static_cast<unsigned>(inputs * 131 + columns));
  std::uniform_int_distribution<int> weight(-128, 127);
  std::uniform_int_distribution<int> input(-kHistoryLimit, kHistoryLimit);
  Sample sample;
  for (std::size_t i = 0; i < inputs * columns; ++i) {
    sample.weights.push_back(static_cast<std::int8_t>(i % 3 == 0 ? -128 : weight(random)));
  }
  for (std::size_t c = 0; c < columns; ++c) {
    sample.scale.push_back(std::ldexp(1.0F + static_cast<float>(c) / 64.0F, -12));
  }
  for (std::size_t i = 0; i < rows * PaddedInputs(inputs); ++i) {
    sample.in.push_back(static_cast<std::int16_t>(i % 3 == 0 ? -kHistoryLimit : input(random)));
  }
  return sample;
}

TEST(PredictRows, EveryTargetGivesTheOraclesBits) {
  for (const std::size_t inputs : {1U, 2U, 5U, 64U, 511U, 512U, 513U, 1100U}) {
    for (const std::size_t columns : {1U, 16U, 32U, 33U, 70U}) {
      for (const std::size_t rows : {0U, 1U, 4U, 9U, 13U}) {
        const Sample sample = MakeSample(inputs, columns, rows);
        const PackedPredictor packed = PackPredictor(sample.weights, sample.scale);
        const std::size_t stride = PaddedColumns(columns) + 3;
        std::vector<float> expected(rows * stride, 77.0F);
        PredictRowsRef(packed, sample.in.data(), PaddedInputs(inputs), rows, expected.data(),
                       stride);
        ForEachIsa([&] {
          std::vector<float> out(rows * stride, 77.0F);
          PredictRows(packed, sample.in.data(), PaddedInputs(inputs), rows, out.data(), stride);
          EXPECT_EQ(out, expected) << inputs << " to " << columns << ", rows " << rows;
        });
      }
    }
  }
}

// From the matrix as it was given, with the largest magnitudes that there may be.
TEST(PredictRows, IsTheScaledProductInBlocks) {
  constexpr std::size_t kInputs = 700;
  constexpr std::size_t kColumns = 3;
  const Sample sample = MakeSample(kInputs, kColumns, 2);
  std::vector<float> out(2 * PaddedColumns(kColumns));
  PredictRows(PackPredictor(sample.weights, sample.scale), sample.in.data(), kInputs, 2, out.data(),
              PaddedColumns(kColumns));
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t c = 0; c < kColumns; ++c) {
      std::int64_t blocks[2] = {};
      for (std::size_t i = 0; i < kInputs; ++i) {
        blocks[i / kPredictorBlock] +=
            std::int64_t{sample.weights[c * kInputs + i]} * sample.in[row * kInputs + i];
      }
      const float sum = static_cast<float>(blocks[0]) + static_cast<float>(blocks[1]);
      EXPECT_EQ(out[row * PaddedColumns(kColumns) + c], sum * sample.scale[c]);
    }
  }
}

TEST(RoundHistory, EveryTargetRoundsToEvenWithinTheLimits) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0F,    0.0078125F, 0.0234375F, -0.0078125F, 1.0F, -2.5F,
                               255.98F, 256.0F,     -1e30F,     inf,         -inf, std::nanf("")};
  std::vector<std::int16_t> expected = {0,     0,     2,      0,     64,     -160,
                                        16383, 16383, -16383, 16383, -16383, 16383};
  for (int copies = 0; copies < 2; ++copies) {  // beyond the width of vectors
    values.insert(values.end(), values.begin(), values.end());
    expected.insert(expected.end(), expected.begin(), expected.end());
  }
  ForEachIsa([&] {
    std::vector<std::int16_t> history(values.size());
    RoundHistory(values, history.data());
    EXPECT_EQ(history, expected);
  });
}

}  // namespace
}  // namespace kvserve
