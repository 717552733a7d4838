#include <algorithm>
#include <cmath>

#include "kernels/predict_rows/predict_rows.h"

namespace kvserve {

PackedPredictor PackPredictor(std::span<const std::int8_t> weights, std::span<const float> scale) {
  PackedPredictor packed;
  packed.columns = scale.size();
  packed.inputs = weights.size() / scale.size();
  const std::size_t padded = PaddedColumns(packed.columns);
  packed.weights.resize(PaddedInputs(packed.inputs) * padded);
  for (std::size_t c = 0; c < packed.columns; ++c) {
    for (std::size_t i = 0; i < packed.inputs; ++i) {
      packed.weights[(i / 2 * padded + c) * 2 + i % 2] = weights[c * packed.inputs + i];
    }
  }
  packed.scale.assign(scale.begin(), scale.end());
  packed.scale.resize(padded);
  return packed;
}

void PredictRowsRef(const PackedPredictor& predictor, const std::int16_t* in, std::size_t in_stride,
                    std::size_t rows, float* out, std::size_t out_stride) {
  const std::size_t padded = PaddedColumns(predictor.columns);
  for (std::size_t row = 0; row < rows; ++row, in += in_stride, out += out_stride) {
    for (std::size_t c = 0; c < padded; ++c) {
      float total = 0.0F;
      for (std::size_t begin = 0; begin < predictor.inputs; begin += kPredictorBlock) {
        const std::size_t end = std::min(begin + kPredictorBlock, predictor.inputs);
        std::int32_t sum = 0;
        for (std::size_t i = begin; i < end; ++i) {
          sum += in[i] * predictor.weights[(i / 2 * padded + c) * 2 + i % 2];
        }
        total += static_cast<float>(sum);
      }
      out[c] = total * predictor.scale[c];
    }
  }
}

void RoundHistoryRef(std::span<const float> values, std::int16_t* history) {
  constexpr float kLimit = kHistoryLimit;
  for (std::size_t i = 0; i < values.size(); ++i) {
    float units = values[i] * (1.0F / kHistoryUnit);
    units = units < kLimit ? units : kLimit;
    units = units > -kLimit ? units : -kLimit;
    history[i] = static_cast<std::int16_t>(std::nearbyint(units));
  }
}

}  // namespace kvserve
