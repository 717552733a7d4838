// Whitening, predictors and code tables of a model, trained as the chain
// whiten | predict | steps | contexts will use them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/workers.h"
#include "calibration/sensitivity.h"
#include "calibration/transform/calibration_texts.h"
#include "kvserve/error.h"
#include "library/calibration_artefact.h"

namespace kvserve {

struct TransformOptions {
  std::vector<double> steps = {1};  // operating points, ascending, positive
  // Heads are whitened together, as many adjacent ones as have so many columns at most (a divisor
  // of all of them, at least one).
  std::size_t joint_columns = 1024;
  unsigned whitening_bits = 0;  // 2..8; these and the next three 0: as MatrixSizes says
  unsigned predictor_bits = 0;
  // Before a layer, that its planes are predicted from, 1..8.
  std::uint32_t predictor_layers = 0;
  unsigned query_bits = 0;  // of a correlation of queries, 8 or 32; CalibrateTransform's affair
  std::uint32_t frame_tokens = 256;  // of the frames that expectations are of
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // planes
};

// What the options say of the matrices, else these; but 6, 4 and 8 bits and one layer for models
// whose whitening and predictors would take more than 64 MB in 8 bits and from one layer.
struct MatrixSizes {
  unsigned whitening_bits = kMostMatrixBits;
  unsigned predictor_bits = kMostMatrixBits;
  std::uint32_t predictor_layers = 2;
  unsigned query_bits = 32;
};
[[nodiscard]] MatrixSizes MatrixSizesOf(const KvGeometry& geometry,
                                        const TransformOptions& options);

// Sets whitening, predictors, code_tables and frame_expectation of `contents`. `classes` [2 * layer
// + kind][row] are those of the selectors that the chain will have. Layer by layer in closed loop:
// what a plane is predicted from are the earlier ones as a decoder will have them, quantized at the
// middle step for the predictors and at each step for the tables. The first four tokens of each
// text count nothing. One unit of step is an error of nominal tokens that costs 0.01 nats per
// scored token to first order, at the sensitivity's number of tokens of context. Memory: about 60
// bytes per value of a plane beside the texts. kMismatch when the sensitivity lacks a plane; errors
// of `texts`.
[[nodiscard]] Status TrainTransform(const CalibrationTexts& texts, const Sensitivity& sensitivity,
                                    std::span<const std::vector<std::uint8_t>> classes,
                                    const TransformOptions& options, Workers& workers,
                                    CalibrationArtefact::Contents& contents);

// Root of the metric's unit: an error that is even in the sensitivities' norms and uniform within
// this step costs 0.01 nats per scored token.
[[nodiscard]] double SensitivityUnit(const Sensitivity& sensitivity, const KvGeometry& geometry);

}  // namespace kvserve
