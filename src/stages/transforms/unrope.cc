// Turns keys back from their positions: what is left is the key before RoPE, whose channels have
// the same mean and covariance at every token, so that means, scales and bases which are calibrated
// or counted over many tokens fit. The position of a token is its index; style and theta are those
// of the layer in the frame. Values, and layers whose rotation is not known as one theta over whole
// heads (rope_style none), pass as they are.
#include "kernels/rotate/rotate.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr StageInfo kInfo = {
    .id = 0x0204,
    .name = "unrope",
    .kind = StageKind::kTransform,
    .summary = "keys turned back from their positions, where the layer's rotation is known",
};

struct Rotation : PlaneState {
  RopeRows rope;  // of row 0
};

class UnRope : public Transform, public RowTransform {
 public:
  [[nodiscard]] const RowTransform* rows() const override { return this; }
  [[nodiscard]] bool unrotates_keys() const override { return true; }

  // Null where nothing is turned.
  [[nodiscard]] Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                               Direction /*direction*/) const override {
    const LayerGeometry& layer = plane.frame->geometry->layers[plane.layer];
    if (plane.kind != PlaneKind::kKey || layer.rope_style == RopeStyle::kNone ||
        shape.dim % 2 != 0) {
      return nullptr;
    }
    const auto turns = plane.arena->Take<std::uint64_t>(RopePairs(shape.dim));
    RopeTurns(layer.rope_theta, shape.dim, turns);
    auto* rotation = plane.arena->New<Rotation>();
    rotation->rope = {layer.rope_style, shape.dim, shape.heads, plane.tokens.begin, turns};
    return rotation;
  }
  void ForwardRows(const PlaneState* state, std::uint32_t first_row,
                   RealPlane rows) const override {
    if (state != nullptr) UndoRope(rows.span(), From(state, first_row));
  }
  void InverseRows(const PlaneState* state, std::uint32_t first_row,
                   RealPlane rows) const override {
    if (state != nullptr) ApplyRope(rows.span(), From(state, first_row));
  }

 private:
  static RopeRows From(const PlaneState* state, std::uint32_t first_row) {
    RopeRows rope = static_cast<const Rotation*>(state)->rope;
    rope.first_position += first_row;
    return rope;
  }
};

}  // namespace

const StageEntry& UnRopeStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_transform = [](const Settings&) -> Result<std::unique_ptr<Transform>> {
        return std::make_unique<UnRope>();
      }};
  return entry;
}

}  // namespace kvserve
