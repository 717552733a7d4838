// Rotates each head vector by a Walsh-Hadamard matrix with random signs, so that outlier channels
// spread over all of them and coefficients look Gaussian. Nothing is sent: the seed is a parameter.
#include "kernels/hadamard/hadamard.h"

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
    {.id = kOn,
     .name = "on",
     .type = ParameterType::kBoolean,
     .low = 0,
     .high = 1,
     .default_k = 1,
     .default_v = 1,
     .per_plane = true,
     .help = "rotate this plane"},
};

constexpr StageInfo kInfo = {
    .id = 0x0201,
    .name = "hadamard",
    .kind = StageKind::kTransform,
    .parameters = kParameters,
    .summary = "Walsh-Hadamard rotation of each head with random signs",
};

class Hadamard : public Transform {
 public:
  explicit Hadamard(const Settings& settings) : settings_(settings) {}

  Status Forward(const PlaneContext& plane, RealPlane values, ByteWriter& /*side*/) const override {
    if (On(plane)) HadamardForward(values.span(), Signs(plane, values), values.dim);
    return {};
  }

  Status Inverse(const PlaneContext& plane, RealPlane values, ByteReader& /*side*/) const override {
    if (On(plane)) HadamardInverse(values.span(), Signs(plane, values), values.dim);
    return {};
  }

 private:
  [[nodiscard]] bool On(const PlaneContext& plane) const {
    return settings_.integer(kOn, plane.kind) != 0;
  }
  [[nodiscard]] std::vector<std::uint32_t> Signs(const PlaneContext& plane,
                                                 const RealPlane& values) const {
    return HadamardSigns(settings_.integer(kSeed), plane.layer, plane.kind, values.heads,
                         values.dim);
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
