#include "calibration/channel_moments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/try.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"

namespace kvserve {
namespace {

constexpr double kSmallestShare = 1.0 / 1024;  // of the plane's deviation

ChannelStatistics StatisticsOf(const std::vector<double>& mean, const std::vector<double>& squares,
                               std::uint64_t count) {
  double sum = 0.0;
  for (const double square : squares) sum += square;
  const double tokens = static_cast<double>(count);
  const double plane_scale = std::sqrt(sum / (tokens * static_cast<double>(squares.size())));
  const double floor = std::max<double>(plane_scale * kSmallestShare,  //
                                        std::numeric_limits<float>::min());
  ChannelStatistics statistics;
  for (std::size_t c = 0; c < mean.size(); ++c) {
    const double scale = plane_scale == 0 ? 1.0 : std::max(std::sqrt(squares[c] / tokens), floor);
    statistics.mean.push_back(static_cast<float>(mean[c]));
    statistics.scale.push_back(
        static_cast<float>(std::min<double>(scale, std::numeric_limits<float>::max())));
  }
  return statistics;
}

}  // namespace

ChannelMoments::ChannelMoments(const KvGeometry& geometry) : geometry_(geometry) {
  for (const LayerGeometry& layer : geometry.layers) {
    for (const std::uint32_t dim : {layer.k_dim, layer.v_dim}) {
      const std::size_t channels = std::size_t{layer.kv_heads} * dim;
      planes_.push_back({0, std::vector<double>(channels), std::vector<double>(channels)});
    }
  }
}

Status ChannelMoments::Add(const ConstKvView& chunk) {
  if (*chunk.geometry != geometry_) {
    return MakeError(ErrorCode::kMismatch, "KV of two geometries cannot be calibrated together");
  }
  for (const auto& plane : CodingOrder(chunk)) {
    const std::size_t index = 2 * std::size_t{plane.layer} + (plane.kind == PlaneKind::kValue);
    const auto status = AddPlane(plane.view, plane.tokens.begin == 0, planes_[index]);
    if (!status) {
      return MakeError(status.error().code,
                       PlaneName(plane.layer, plane.kind) + ": " + status.error().message);
    }
  }
  return {};
}

Status ChannelMoments::AddPlane(const ConstPlaneView& values, bool skip_first, Plane& plane) {
  const std::size_t skipped = skip_first ? 1 : 0;
  if (values.tokens <= skipped) return {};
  floats_.resize(values.values());
  LoadFloats(values, floats_);
  const std::size_t columns = plane.mean.size();
  const auto rows = std::span<const float>(floats_).subspan(skipped * columns);
  if (FindNonFinite(rows)) {
    return MakeError(ErrorCode::kBadInput, "a value is not finite, so there are no statistics");
  }
  const double added = static_cast<double>(values.tokens - skipped);
  const double before = static_cast<double>(plane.count);
  std::vector<double> mean(columns);
  for (std::size_t i = 0; i < rows.size(); i += columns) {
    for (std::size_t c = 0; c < columns; ++c) mean[c] += rows[i + c];
  }
  for (double& value : mean) value /= added;
  std::vector<double> squares(columns);
  for (std::size_t i = 0; i < rows.size(); i += columns) {
    for (std::size_t c = 0; c < columns; ++c) {
      squares[c] += (rows[i + c] - mean[c]) * (rows[i + c] - mean[c]);
    }
  }
  for (std::size_t c = 0; c < columns; ++c) {
    const double delta = mean[c] - plane.mean[c];
    plane.mean[c] += delta * added / (before + added);
    plane.squares[c] += squares[c] + delta * delta * before * added / (before + added);
  }
  plane.count += values.tokens - skipped;
  return {};
}

std::uint64_t ChannelMoments::tokens() const {
  std::uint64_t most = 0;
  for (const Plane& plane : planes_) most = std::max(most, plane.count);
  return most;
}

std::vector<ChannelStatistics> ChannelMoments::Statistics() const {
  std::vector<ChannelStatistics> statistics(planes_.size());
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    const Plane& plane = planes_[p];
    if (plane.count >= 2) statistics[p] = StatisticsOf(plane.mean, plane.squares, plane.count);
  }
  return statistics;
}

}  // namespace kvserve
