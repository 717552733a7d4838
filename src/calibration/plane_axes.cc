#include "calibration/plane_axes.h"

#include <algorithm>
#include <span>

#include "base/try.h"
#include "calibration/unrotated_plane.h"
#include "pipeline/plane_order.h"

namespace kvserve {
namespace {

KarhunenLoeve Transform(const RowCovariance& rows, std::size_t columns) {
  KarhunenLoeve klt;
  klt.columns = static_cast<std::uint32_t>(columns);
  klt.mean = rows.Mean();
  auto axes = rows.PrincipalAxes(columns);
  klt.basis = std::move(axes.basis);
  klt.variance = std::move(axes.variance);
  return klt;
}

}  // namespace

PlaneAxes::PlaneAxes(const KvGeometry& geometry, std::size_t joint_columns)
    : geometry_(geometry), joint_columns_(joint_columns), planes_(2 * geometry.layers.size()) {
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    const LayerGeometry& layer = geometry.layers[p / 2];
    const std::size_t heads = layer.kv_heads;
    const std::size_t dim = p % 2 == 0 ? layer.k_dim : layer.v_dim;
    if (dim == 0) continue;
    // The covariance over all heads has those of each head on its diagonal.
    planes_[p] =
        heads * dim <= joint_columns ? RowCovariance(1, heads * dim) : RowCovariance(heads, dim);
  }
}

Status PlaneAxes::Add(const ConstKvView& chunk) {
  for (const auto& plane : CodingOrder(chunk)) {
    KVSERVE_TRY(LoadUnrotated(geometry_, plane, floats_));
    const std::size_t columns = std::size_t{plane.view.heads} * plane.view.dim;
    const std::size_t skipped = plane.tokens.begin == 0 && !plane.tokens.empty() ? columns : 0;
    planes_[2 * std::size_t{plane.layer} + (plane.kind == PlaneKind::kValue)]->Add(
        std::span<const float>(floats_).subspan(skipped));
  }
  return {};
}

void PlaneAxes::Store(CalibrationArtefact::Contents& contents) const {
  std::vector<KarhunenLoeve> heads(planes_.size());
  std::vector<KarhunenLoeve> joint(planes_.size());
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    if (!planes_[p] || planes_[p]->count() < 2) continue;
    const LayerGeometry& layer = geometry_.layers[p / 2];
    const std::size_t dim = p % 2 == 0 ? layer.k_dim : layer.v_dim;
    heads[p] = Transform(*planes_[p], dim);
    if (layer.kv_heads * dim <= joint_columns_) {
      joint[p] = Transform(*planes_[p], layer.kv_heads * dim);
    }
  }
  const auto any = [](const std::vector<KarhunenLoeve>& planes) {
    return std::ranges::any_of(planes, [](const auto& plane) { return plane.columns != 0; });
  };
  if (any(heads)) contents.klt_heads = std::move(heads);
  if (any(joint)) contents.klt_joint = std::move(joint);
}

}  // namespace kvserve
