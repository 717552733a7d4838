#include "calibration/transform/calibration_texts.h"

#include <algorithm>
#include <limits>

#include "base/try.h"
#include "calibration/unrotated_plane.h"
#include "pipeline/plane_order.h"

namespace kvserve {

std::uint32_t WholeChunkTokens(const KvGeometry& geometry) {
  std::uint32_t tokens = std::numeric_limits<std::uint32_t>::max();
  for (const LayerGeometry& layer : geometry.layers) {
    // The next token itself is in its window.
    if (layer.window_tokens > 0) tokens = std::min(tokens, std::max(layer.window_tokens, 2U) - 1);
  }
  return tokens;
}

CalibrationTexts::CalibrationTexts(const KvGeometry& geometry) : geometry_(geometry) {}

Status CalibrationTexts::Add(const ConstKvView& chunk) {
  if (chunk.tokens.begin == 0) {
    texts_.push_back({rows_, 0});
    planes_.emplace_back(2 * geometry_.layers.size());
  }
  if (texts_.empty() || chunk.tokens.begin != texts_.back().tokens ||
      chunk.layers.size() != geometry_.layers.size()) {
    return MakeError(ErrorCode::kUnsupported,
                     "a transform is calibrated on whole texts, all layers of them");
  }
  auto& planes = planes_.back();
  for (const auto& plane : CodingOrder(chunk)) {
    if (plane.tokens != chunk.tokens) {
      return MakeError(ErrorCode::kUnsupported,
                       PlaneName(plane.layer, plane.kind) +
                           " has a window shorter than the frames that texts are cut into");
    }
    auto& to = planes[2 * plane.layer + (plane.kind == PlaneKind::kValue ? 1 : 0)];
    const std::size_t row_bytes =
        std::size_t{plane.view.heads} * plane.view.dim * DTypeBytes(plane.view.dtype);
    const std::size_t at = to.size();
    to.resize(at + plane.tokens.size() * row_bytes);
    PlaneView copy = {.data = to.data() + at,
                      .dtype = plane.view.dtype,
                      .tokens = plane.view.tokens,
                      .heads = plane.view.heads,
                      .dim = plane.view.dim,
                      .token_stride = std::int64_t{plane.view.heads} * plane.view.dim,
                      .head_stride = plane.view.dim};
    const std::size_t element = DTypeBytes(plane.view.dtype);
    for (std::uint32_t t = 0; t < copy.tokens; ++t) {
      for (std::uint32_t h = 0; h < copy.heads; ++h) {
        for (std::uint32_t d = 0; d < copy.dim; ++d) {
          std::copy_n(plane.view.at(t, h, d), element, copy.at(t, h, d));
        }
      }
    }
  }
  texts_.back().tokens += chunk.tokens.size();
  rows_ += chunk.tokens.size();
  return {};
}

ConstPlaneView CalibrationTexts::Plane(std::size_t text, std::size_t plane) const {
  const LayerGeometry& layer = geometry_.layers[plane / 2];
  const std::uint32_t dim = plane % 2 == 0 ? layer.k_dim : layer.v_dim;
  return {.data = planes_[text][plane].data(),
          .dtype = geometry_.dtype,
          .tokens = texts_[text].tokens,
          .heads = layer.kv_heads,
          .dim = dim,
          .token_stride = std::int64_t{layer.kv_heads} * dim,
          .head_stride = dim};
}

ConstKvView CalibrationTexts::View(std::size_t text) const {
  ConstKvView view;
  view.geometry = &geometry_;
  view.tokens = {0, texts_[text].tokens};
  for (std::uint32_t layer = 0; layer < geometry_.layers.size(); ++layer) {
    auto& there = view.layers.emplace_back();
    there.layer = layer;
    there.tokens = view.tokens;
    there.k = Plane(text, 2 * layer);
    if (!geometry_.layers[layer].single_plane()) there.v = Plane(text, 2 * layer + 1);
  }
  return view;
}

Status CalibrationTexts::Load(std::size_t plane, std::vector<float>& out) const {
  out.clear();
  std::vector<float> floats;
  for (std::size_t text = 0; text < texts_.size(); ++text) {
    const OrderedPlane<const std::byte> ordered = {
        .layer = static_cast<std::uint32_t>(plane / 2),
        .kind = plane % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue,
        .tokens = {0, texts_[text].tokens},
        .view = Plane(text, plane)};
    KVSERVE_TRY(LoadUnrotated(geometry_, ordered, floats));
    out.insert(out.end(), floats.begin(), floats.end());
  }
  return {};
}

}  // namespace kvserve
