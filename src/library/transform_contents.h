// What the chain whiten | predict | steps | contexts has learnt offline about one model's KV.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvserve/geometry.h"

namespace kvserve {

// Matrices are integers of so many bits in the file, with a scale for each row, and bytes in
// memory.
inline constexpr unsigned kLeastMatrixBits = 2;
inline constexpr unsigned kMostMatrixBits = 8;
// Largest magnitude: -2^(bits - 1) has no opposite, which would cost kernels a case.
[[nodiscard]] constexpr int MostOf(unsigned bits) {
  return (1 << (bits - 1)) - 1;
}

// Turns one plane (keys before RoPE) into components whose errors all count alike: an error of one
// unit in each component of every token costs a divergence that the calibrator fixes
// (docs/CALIBRATION.md), and components are uncorrelated over the calibration texts. Columns are in
// groups of adjacent ones that are transformed together. x = mean + sum over c of z_c scale[c]
// inverse[c, :].
struct Whitening {
  std::uint32_t columns = 0;         // of a group; 0: not there
  std::vector<float> mean;           // [head * dim]
  std::vector<float> scale;          // [group][component], positive
  std::vector<std::int8_t> inverse;  // [group][component][column], within +-MostOf(bits)
  std::uint8_t bits = kMostMatrixBits;
};

// Predicts the components of one plane from earlier planes of the same token:
// scale[c] * sum over i of weights[c, i] h[i], with h in 1/64 of a step.
struct Predictor {
  std::uint32_t inputs = 0;          // as PredictorInputs; 0: not there
  std::vector<float> scale;          // [component], not negative
  std::vector<std::int8_t> weights;  // [component][input], within +-MostOf(bits)
  std::uint8_t bits = kMostMatrixBits;
};

inline constexpr std::uint32_t kMostPredictorLayers = 8;

// Inputs of plane [2 * layer + kind]: the components of K and V of up to `layers` (1..8) layers
// before, ascending, and for V those of K of its own layer behind them. The first layer has none
// before it, a single plane no V.
[[nodiscard]] std::size_t PredictorInputs(const KvGeometry& geometry, std::size_t plane,
                                          std::uint32_t layers);

inline constexpr std::size_t kCodeTables = 60;
inline constexpr std::size_t kCodeSymbols = 255;  // symbol = q + 127
inline constexpr std::size_t kCodeEscape = 255;
inline constexpr std::uint8_t kUnitCodeTable = 24;  // for a mean |residual| of one step
inline constexpr std::size_t kCodeClasses = 13;
inline constexpr std::size_t kNoClass = 13;  // as the previous layer's class

// Static tables for the symbols of `steps`, a table for each quarter of an octave of scale, and how
// a symbol's table is found; see docs/FORMAT_STAGES.md, "Codec contexts".
struct CodeTables {
  using Frequencies = std::array<std::uint16_t, 256>;  // symbols, then escape; sum 4096

  struct Plane {
    std::vector<std::int8_t> column;                // [component] index, in quarter octaves
    std::array<std::int8_t, kCodeClasses> klass{};  // added for a token's class
    // In 1/256: a constant in octaves, then weights of the energies of K and V of the layer before
    // and of K of the same layer (0 where there is none).
    std::array<std::int16_t, 4> energy{};
  };
  // What was learnt at one step size.
  struct Point {
    float step = 0;             // of `whiten`, positive
    float bits_per_value = 0;   // over the calibration texts, not negative
    std::vector<Plane> planes;  // [2 * layer + kind]; no columns: not there
  };
  // Transition[previous layer's class of the token, 13: none][class], sums 4096, 1 or more each.
  using ClassTable = std::array<std::array<std::uint16_t, kCodeClasses>, kCodeClasses + 1>;

  // 0: the table lacks the symbol. An escape is 1 or more.
  std::array<Frequencies, kCodeTables> frequencies{};
  std::array<std::uint16_t, kCodeTables> mean_size{};  // mean |q| of a table in 1/256
  std::vector<Point> points;                           // ascending steps, 1 or more
  std::array<ClassTable, 2> classes{};                 // [kind]; all 0: not there
  [[nodiscard]] bool has_classes() const { return classes[0][0][0] != 0; }
};

// What frames of the calibration texts, or of others, look like through whitening and prediction,
// so that frames that do not can be told. In octaves, over frames: of the mean square of whitened
// values, and of that over the mean square of what prediction leaves (0 without a predictor).
struct FrameExpectation {
  struct Plane {
    float energy = 0;
    float energy_spread = 0;  // standard deviation, positive; 0: the plane is not there
    float gain = 0;
    float gain_spread = 0;  // not negative
  };
  std::uint32_t frame_tokens = 0;  // of the frames, 1 or more
  std::vector<Plane> planes;       // [2 * layer + kind]
  // Of texts that nothing else was learnt from: the kinds to be served. Those that predictors were
  // fitted to look better predicted than any others.
  bool in_kind = false;
};

}  // namespace kvserve
