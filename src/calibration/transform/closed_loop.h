// One plane after another as encoder and decoder see them: predicted from what the decoder has of
// earlier planes, and quantized.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/workers.h"
#include "kvserve/error.h"
#include "library/transform_contents.h"

namespace kvserve {

// An earlier plane in 1/64 of a step, [row, column].
struct HistoryRows {
  std::span<const std::int16_t> values;
  std::size_t columns = 0;
};

// What is kept of the planes before, at one step size.
class PlaneHistory {
 public:
  explicit PlaneHistory(std::uint32_t layers) : before_(layers) {}
  void NextLayer();
  // Those that plane [2 * layer + kind] is predicted from, in order.
  [[nodiscard]] std::vector<HistoryRows> Inputs(std::size_t plane) const;
  // [row] of K and V of the layer before, and of K of the same layer; empty: not there.
  [[nodiscard]] std::array<std::span<const std::int32_t>, 3> Energies(std::size_t plane) const;
  void Add(std::size_t plane, const HistoryRows& rows, std::vector<std::int32_t> energies);

 private:
  struct Plane {
    std::vector<std::int16_t> values;
    std::size_t columns = 0;
    std::vector<std::int32_t> energies;
  };
  std::vector<std::array<Plane, 2>> before_;  // [layer, ascending][kind]
  std::array<Plane, 2> own_;
};

// A coded plane, all [row, column].
struct CodedPlane {
  std::vector<float> residuals;      // components less predictions, in steps of nominal tokens
  std::vector<std::int8_t> symbols;  // within +-127
  HistoryRows history;               // of `decoded`
  std::vector<std::int16_t> decoded;
};

struct PlaneLoop {
  std::span<const float> components;  // [row, column], in units
  std::size_t columns = 0;
  float inverse_step = 1;
  const Predictor& predictor;             // inputs 0: none
  std::span<const std::uint8_t> classes;  // [row]
  std::span<const std::uint8_t> raw;      // [row] 1: comes back as it is

  [[nodiscard]] Status Run(std::span<const HistoryRows> inputs, Workers& workers,
                           CodedPlane& out) const;
};

}  // namespace kvserve
