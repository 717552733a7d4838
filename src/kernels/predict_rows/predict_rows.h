// Linear prediction of rows from rows of integers, by matrices of bytes: the sums are integers, so
// that encoder and decoder agree on every bit wherever they run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvserve {

// Inputs are within +-kHistoryLimit, so that the sum over a block of inputs fits in 32 bits.
inline constexpr int kHistoryLimit = 16383;
inline constexpr float kHistoryUnit = 0x1p-6F;  // of a step
inline constexpr std::size_t kPredictorBlock = 512;
// Columns are padded to a multiple of that many.
inline constexpr std::size_t kPredictorColumns = 32;

[[nodiscard]] constexpr std::size_t PaddedColumns(std::size_t columns) {
  return (columns + kPredictorColumns - 1) / kPredictorColumns * kPredictorColumns;
}
// Elements of a row of inputs that are read; those beyond the inputs count nothing.
[[nodiscard]] constexpr std::size_t PaddedInputs(std::size_t inputs) {
  return inputs + inputs % 2;
}

// A predictor as the kernels read it.
struct PackedPredictor {
  std::size_t inputs = 0;
  std::size_t columns = 0;
  std::vector<std::int8_t> weights;  // [input / 2][padded column][input % 2]
  std::vector<float> scale;          // [padded column]
};

// `weights` is [column][input], `scale` [column].
[[nodiscard]] PackedPredictor PackPredictor(std::span<const std::int8_t> weights,
                                            std::span<const float> scale);

// out[r * out_stride + c] = scale[c] * sum over i of weights[c, i] * in[r * in_stride + i]: sums of
// int32 over blocks of 512 inputs, each rounded to float32 and added in ascending order, then one
// product. Bit-identical on every instruction set. in_stride is at least PaddedInputs(inputs),
// out_stride at least PaddedColumns(columns); padding columns become 0. At least one input.
void PredictRows(const PackedPredictor& predictor, const std::int16_t* in, std::size_t in_stride,
                 std::size_t rows, float* out, std::size_t out_stride);

// history = value / kHistoryUnit, to the nearest integer (ties to even) within +-kHistoryLimit.
// Not a number becomes the upper limit. Bit-identical on every instruction set.
void RoundHistory(std::span<const float> values, std::int16_t* history);

// Oracles.
void PredictRowsRef(const PackedPredictor& predictor, const std::int16_t* in, std::size_t in_stride,
                    std::size_t rows, float* out, std::size_t out_stride);
void RoundHistoryRef(std::span<const float> values, std::int16_t* history);

}  // namespace kvserve
