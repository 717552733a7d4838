// Rotates each head vector by a Walsh-Hadamard matrix with random signs, so that outlier channels
// spread over all of them and coefficients look Gaussian. Nothing is sent: the seed is a parameter.
#include "kernels/hadamard/hadamard.h"

#include "pipeline/plane_switch.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kSeed = 1;
constexpr std::uint8_t kOn = 2;  // and 3 for V

constexpr ParameterInfo kParameters[] = {
    {.id = kSeed,
     .name = "seed",
     .type = ParameterType::kInteger,
     .low = 0,
     .high = 2147483647,
     .default_k = 0x3333,
     .help = "seed of the random signs"},
    OnParameter(kOn, "rotate this plane"),
};

constexpr StageInfo kInfo = {
    .id = 0x0201,
    .name = "hadamard",
    .kind = StageKind::kTransform,
    .parameters = kParameters,
    .summary = "Walsh-Hadamard rotation of each head with random signs",
};

struct Signs : PlaneState {
  std::span<const std::uint32_t> masks;  // [head, dim]
};

class Hadamard : public Transform, public RowTransform {
 public:
  explicit Hadamard(const Settings& settings) : settings_(settings) {}

  [[nodiscard]] const RowTransform* rows() const override { return this; }

  // Null where the rotation is off.
  [[nodiscard]] Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                               Direction /*direction*/) const override {
    if (settings_.integer(kOn, plane.kind) == 0) return nullptr;
    auto* signs = plane.arena->New<Signs>();
    const auto masks = plane.arena->Take<std::uint32_t>(shape.columns());
    HadamardSigns(settings_.integer(kSeed), plane.layer, plane.kind, shape.dim, masks);
    signs->masks = masks;
    return signs;
  }
  void ForwardRows(const PlaneState* state, std::uint32_t /*first_row*/,
                   RealPlane rows) const override {
    if (state != nullptr) HadamardForward(rows.span(), Masks(state), rows.dim);
  }
  void InverseRows(const PlaneState* state, std::uint32_t /*first_row*/,
                   RealPlane rows) const override {
    if (state != nullptr) HadamardInverse(rows.span(), Masks(state), rows.dim);
  }

 private:
  static std::span<const std::uint32_t> Masks(const PlaneState* state) {
    return static_cast<const Signs*>(state)->masks;
  }

  Settings settings_;
};

}  // namespace

const StageEntry& HadamardStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_transform = [](const Settings& settings) -> Result<std::unique_ptr<Transform>> {
        return std::make_unique<Hadamard>(settings);
      }};
  return entry;
}

}  // namespace kvserve
