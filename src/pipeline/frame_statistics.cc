#include "pipeline/frame_statistics.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "kernels/gemm/gemm.h"
#include "kernels/predict_rows/predict_rows.h"
#include "kernels/rotate/rotate.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kSinks = 4;
// Octaves; planes that hardly differed between the calibration's frames are not held to that.
constexpr double kLeastSpread = 0.1;

// Evenly spaced over the frame, ascending.
std::span<const std::uint32_t> SampledTokens(TokenRange tokens, Arena& arena) {
  tokens.begin = std::min(std::max(tokens.begin, kSinks), tokens.end);
  const std::uint32_t count = std::min(kStatisticsTokens, tokens.size());
  const auto sampled = arena.Take<std::uint32_t>(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    sampled[i] =
        tokens.begin + static_cast<std::uint32_t>(std::uint64_t{tokens.size()} * i / count);
  }
  return sampled;
}

// Whitened values of the sampled tokens, [sample, component], and what predictors see of them.
// Zeros stand for tokens that the plane does not hold.
struct SampledPlane {
  std::span<float> values;
  std::span<std::int16_t> history;
  std::size_t columns = 0;
};

class FrameMeasurement {
 public:
  FrameMeasurement(const ConstKvView& view, const CalibrationArtefact& artefact, Arena& arena)
      : geometry_(*view.geometry),
        artefact_(artefact),
        arena_(arena),
        tokens_(SampledTokens(view.tokens, arena)),
        found_(arena.Take<PlaneStatistics>(2 * geometry_.layers.size())),
        planes_(arena.Take<SampledPlane>(2 * geometry_.layers.size())) {
    std::fill(found_.begin(), found_.end(), PlaneStatistics{});
    std::fill(planes_.begin(), planes_.end(), SampledPlane{});
  }

  Status Add(const OrderedPlane<const std::byte>& plane) {
    const std::size_t index = IndexOf(plane.layer, plane.kind);
    const Whitening* const whitening = artefact_.whitening(plane.layer, plane.kind);
    if (whitening == nullptr || tokens_.empty() || plane.tokens.empty()) return {};
    KVSERVE_ASSIGN(const auto forward, artefact_.whitening_forward(plane.layer, plane.kind));
    const std::size_t columns = whitening->mean.size();
    SampledPlane sampled{arena_.TakeZeroed<float>(tokens_.size() * columns),
                         arena_.TakeZeroed<std::int16_t>(tokens_.size() * columns), columns};
    const auto row = arena_.Take<float>(columns);
    double energy = 0;
    std::size_t held = 0;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i] < plane.tokens.begin || tokens_[i] >= plane.tokens.end) continue;
      if (!LoadRow(plane, tokens_[i], row)) return {};  // encoding has a better message
      const auto out = sampled.values.subspan(i * columns, columns);
      for (std::size_t c = 0; c < columns; ++c) row[c] -= whitening->mean[c];
      const std::size_t group = whitening->columns;
      for (std::size_t first = 0; first < columns; first += group) {
        MultiplyRows(row.subspan(first, group), group,
                     forward.subspan(first * group, group * group), group, out.data() + first,
                     group);
      }
      for (const float value : out) energy += double{value} * value;
      ++held;
    }
    if (held == 0) return {};
    RoundHistory(sampled.values, sampled.history.data());
    planes_[index] = sampled;
    const double values = static_cast<double>(held * columns);
    found_[index] = {true, std::log2(std::max(energy / values, kTiny)), 0};
    Predict(plane, energy, index);
    return {};
  }

  [[nodiscard]] std::span<const PlaneStatistics> found() const { return found_; }

 private:
  static constexpr double kTiny = 1e-30;

  static std::size_t IndexOf(std::uint32_t layer, PlaneKind kind) {
    return 2 * std::size_t{layer} + (kind == PlaneKind::kKey ? 0 : 1);
  }

  // A key before RoPE, a value as it is.
  bool LoadRow(const OrderedPlane<const std::byte>& plane, std::uint32_t token,
               std::span<float> row) const {
    if (!LoadRows(plane.view, token - plane.tokens.begin, 1, row)) return false;
    const LayerGeometry& layer = geometry_.layers[plane.layer];
    if (plane.kind != PlaneKind::kKey || layer.rope_style == RopeStyle::kNone ||
        layer.k_dim % 2 != 0) {
      return true;
    }
    const auto turns = arena_.Take<std::uint64_t>(RopePairs(layer.k_dim));
    RopeTurns(layer.rope_theta, layer.k_dim, turns);
    UndoRope(row, {layer.rope_style, layer.k_dim, layer.kv_heads, token, turns});
    return true;
  }

  void Predict(const OrderedPlane<const std::byte>& plane, double energy, std::size_t index) {
    const Predictor* const predictor = artefact_.predictor(plane.layer, plane.kind);
    if (predictor == nullptr) return;
    const SampledPlane& own = planes_[index];
    const std::size_t layers = std::min<std::size_t>(plane.layer, artefact_.predictor_layers());
    const std::size_t stride = PaddedInputs(predictor->inputs);
    const auto history = arena_.TakeZeroed<std::int16_t>(tokens_.size() * stride);
    std::size_t at = 0;
    // Of planes that are not there, zeros.
    for (std::size_t p = 2 * (plane.layer - layers); p < index; ++p) {
      const SampledPlane& input = planes_[p];
      for (std::size_t i = 0; i < tokens_.size() && input.columns > 0; ++i) {
        const auto row = input.history.subspan(i * input.columns, input.columns);
        std::copy(row.begin(), row.end(),
                  history.begin() + static_cast<std::ptrdiff_t>(i * stride + at));
      }
      at += ColumnsOf(p);
    }
    const std::size_t padded = PaddedColumns(own.columns);
    const auto prediction = arena_.Take<float>(tokens_.size() * padded);
    const auto* const packed = artefact_.packed_predictors().Get<PackedPredictor>(
        index, [&] { return PackPredictor(predictor->weights, predictor->scale); });
    PredictRows(*packed, history.data(), stride, tokens_.size(), prediction.data(), padded);
    double left = 0;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i] < plane.tokens.begin || tokens_[i] >= plane.tokens.end) continue;
      for (std::size_t c = 0; c < own.columns; ++c) {
        const double error = double{own.values[i * own.columns + c]} - prediction[i * padded + c];
        left += error * error;
      }
    }
    found_[index].gain = std::log2(std::max(energy, kTiny) / std::max(left, kTiny));
  }

  [[nodiscard]] std::size_t ColumnsOf(std::size_t plane) const {
    const LayerGeometry& layer = geometry_.layers[plane / 2];
    return std::size_t{layer.kv_heads} * (plane % 2 == 0 ? layer.k_dim : layer.v_dim);
  }

  const KvGeometry& geometry_;
  const CalibrationArtefact& artefact_;
  Arena& arena_;
  std::span<const std::uint32_t> tokens_;
  std::span<PlaneStatistics> found_;
  std::span<SampledPlane> planes_;
};

double Square(double x) {
  return x * x;
}

}  // namespace

Result<std::span<const PlaneStatistics>> MeasureFrame(const ConstKvView& view,
                                                      const CalibrationArtefact& artefact,
                                                      Arena& arena) {
  FrameMeasurement measurement(view, artefact, arena);
  for (const auto& plane : CodingOrder(view)) KVSERVE_TRY(measurement.Add(plane));
  return measurement.found();
}

std::span<const PlaneDistance> DistancesOf(std::span<const PlaneStatistics> frame,
                                           const FrameExpectation& expectation, Arena& arena) {
  const auto distances =
      arena.Take<PlaneDistance>(std::min(frame.size(), expectation.planes.size()));
  for (std::size_t p = 0; p < distances.size(); ++p) {
    const FrameExpectation::Plane& expected = expectation.planes[p];
    distances[p] = {};
    if (!frame[p].measured || expected.energy_spread <= 0) continue;
    const double energy_spread = std::max<double>(expected.energy_spread, kLeastSpread);
    const double gain_spread = std::max<double>(expected.gain_spread, kLeastSpread);
    const double energy = frame[p].energy - expected.energy;
    const double gain = frame[p].gain - expected.gain;
    distances[p] = {true, expected.gain != 0 || expected.gain_spread > 0, energy / energy_spread,
                    gain / gain_spread, (energy - gain) / std::hypot(energy_spread, gain_spread)};
  }
  return distances;
}

FrameDistance Summarize(std::span<const PlaneDistance> planes) {
  FrameDistance sum;
  double compared = 0;
  double keys = 0;
  for (std::size_t p = 0; p < planes.size(); ++p) {
    const PlaneDistance& plane = planes[p];
    if (!plane.compared) continue;
    sum.energy += Square(plane.energy);
    sum.gain += Square(plane.gain);
    ++compared;
    if (p % 2 != 0 || !plane.predicted) continue;
    sum.key_loss -= plane.gain;
    sum.key_residual += plane.residual;
    ++keys;
  }
  if (compared == 0) return {};
  sum.energy = std::sqrt(sum.energy / compared);
  sum.gain = std::sqrt(sum.gain / compared);
  sum.key_loss /= std::max(keys, 1.0);
  sum.key_residual /= std::max(keys, 1.0);
  return sum;
}

}  // namespace kvserve
