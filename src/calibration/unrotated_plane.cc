#include "calibration/unrotated_plane.h"

#include "kernels/rotate/rotate.h"
#include "pipeline/plane_floats.h"

namespace kvserve {

Status LoadUnrotated(const KvGeometry& geometry, const OrderedPlane<const std::byte>& plane,
                     std::vector<float>& out) {
  out.resize(plane.view.values());
  LoadFloats(plane.view, out);
  if (FindNonFinite(out)) {
    return MakeError(ErrorCode::kBadInput, PlaneName(plane.layer, plane.kind) +
                                               ": a value is not finite, so there are no "
                                               "statistics");
  }
  const LayerGeometry& layer = geometry.layers[plane.layer];
  if (plane.kind != PlaneKind::kKey || layer.rope_style == RopeStyle::kNone ||
      layer.k_dim % 2 != 0) {
    return {};
  }
  std::vector<std::uint64_t> turns(RopePairs(layer.k_dim));
  RopeTurns(layer.rope_theta, layer.k_dim, turns);
  UndoRope(out, {layer.rope_style, layer.k_dim, layer.kv_heads, plane.tokens.begin, turns});
  return {};
}

}  // namespace kvserve
