// Prediction with the dot product instructions of AVX-512 VNNI, which Highway does not offer here.
#pragma once

#include "kernels/predict_rows/predict_rows.h"

namespace kvserve {

// The instruction set in force is avx512, and the machine has VNNI beside it.
[[nodiscard]] bool HasVnni();
// As PredictRows; only where HasVnni().
void PredictRowsVnni(const PackedPredictor& predictor, const std::int16_t* in,
                     std::size_t in_stride, std::size_t rows, float* out, std::size_t out_stride);

}  // namespace kvserve
