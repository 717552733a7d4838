#include "calibration/transform/closed_loop.h"

#include <algorithm>
#include <cmath>

#include "kernels/predict_rows/predict_rows.h"

namespace kvserve {
namespace {

constexpr std::size_t kTileRows = 128;
constexpr float kMostSymbol = 127;

// 2^((class - 6) / 2): how much finer the steps of a class are.
float Gain(std::uint8_t token_class) {
  constexpr double kRoot = 1.4142135623730951;
  const int half = int{token_class} - 6 + 64;
  return static_cast<float>(std::ldexp(half % 2 == 0 ? 1.0 : kRoot, half / 2 - 32));
}

struct Row {
  const float* components;
  const float* predictions;
  std::size_t columns;
  float inverse_step;
  float gain;
  bool raw;
};

void CodeRow(const Row& row, float* residuals, std::int8_t* symbols, float* decoded) {
  const float step = 1 / row.gain;
  for (std::size_t c = 0; c < row.columns; ++c) {
    const float component = row.components[c] * row.inverse_step;
    residuals[c] = component - row.predictions[c];
    const float q = std::nearbyint(residuals[c] * row.gain);
    const bool exact = row.raw || std::fabs(q) > kMostSymbol;
    symbols[c] = static_cast<std::int8_t>(std::clamp(q, -kMostSymbol, kMostSymbol));
    decoded[c] = exact ? component : row.predictions[c] + q * step;
  }
}

}  // namespace

void PlaneHistory::NextLayer() {
  std::ranges::move(before_.begin() + 1, before_.end(), before_.begin());
  before_.back() = std::move(own_);
  own_ = {};
}

std::vector<HistoryRows> PlaneHistory::Inputs(std::size_t plane) const {
  std::vector<HistoryRows> inputs;
  const auto add = [&](const Plane& from) {
    if (from.columns > 0) inputs.push_back({from.values, from.columns});
  };
  for (const auto& layer : before_) {
    add(layer[0]);
    add(layer[1]);
  }
  if (plane % 2 == 1) add(own_[0]);
  return inputs;
}

std::array<std::span<const std::int32_t>, 3> PlaneHistory::Energies(std::size_t plane) const {
  std::array<std::span<const std::int32_t>, 3> energies = {before_.back()[0].energies,
                                                           before_.back()[1].energies};
  if (plane % 2 == 1) energies[2] = own_[0].energies;
  return energies;
}

void PlaneHistory::Add(std::size_t plane, const HistoryRows& rows,
                       std::vector<std::int32_t> energies) {
  Plane& own = own_[plane % 2];
  own.values.assign(rows.values.begin(), rows.values.end());
  own.columns = rows.columns;
  own.energies = std::move(energies);
}

Status PlaneLoop::Run(std::span<const HistoryRows> inputs, Workers& workers,
                      CodedPlane& out) const {
  const std::size_t rows = classes.size();
  out.residuals.resize(rows * columns);
  out.symbols.resize(rows * columns);
  out.decoded.resize(rows * columns);
  const PackedPredictor packed =
      predictor.inputs == 0 ? PackedPredictor() : PackPredictor(predictor.weights, predictor.scale);
  const std::size_t in_stride = PaddedInputs(predictor.inputs);
  const std::size_t out_stride = PaddedColumns(columns);
  const std::size_t tiles = (rows + kTileRows - 1) / kTileRows;
  Status status = workers.Run(tiles, [&](std::size_t tile, Arena& scratch) -> Status {
    const std::size_t first = tile * kTileRows;
    const std::size_t count = std::min(kTileRows, rows - first);
    const auto predictions = scratch.TakeZeroed<float>(count * out_stride);
    if (predictor.inputs > 0) {
      const auto in = scratch.TakeZeroed<std::int16_t>(count * in_stride);
      for (std::size_t row = 0; row < count; ++row) {
        std::int16_t* to = in.data() + row * in_stride;
        for (const HistoryRows& plane : inputs) {
          const auto from = plane.values.subspan((first + row) * plane.columns, plane.columns);
          to = std::copy(from.begin(), from.end(), to);
        }
      }
      PredictRows(packed, in.data(), in_stride, count, predictions.data(), out_stride);
    }
    const auto decoded = scratch.Take<float>(count * columns);
    for (std::size_t row = 0; row < count; ++row) {
      const std::size_t at = (first + row) * columns;
      CodeRow({components.data() + at, predictions.data() + row * out_stride, columns, inverse_step,
               Gain(classes[first + row]), raw[first + row] == 1},
              out.residuals.data() + at, out.symbols.data() + at, decoded.data() + row * columns);
    }
    RoundHistory(decoded, out.decoded.data() + first * columns);
    return {};
  });
  out.history = {out.decoded, columns};
  return status;
}

}  // namespace kvserve
