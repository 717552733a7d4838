// Karhunen-Loeve transform: takes the mean out of each channel and turns the columns, of every head
// or of all heads at once, to the principal axes of the calibration texts. Energy gathers in the
// leading components; the basis is orthonormal, so squared errors stay what they are. For keys the
// axes are those before RoPE, hence `unrope` stands before it.
#include <algorithm>
#include <string>

#include "base/try.h"
#include "kernels/gemm/gemm.h"
#include "pipeline/plane_switch.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kScope = 1;  // and 2 for V
constexpr std::uint8_t kOn = 3;     // and 4

constexpr std::string_view kScopes[] = {"head", "joint"};
constexpr std::uint32_t kJoint = 1;

constexpr ParameterInfo kParameters[] = {
    {.id = kScope,
     .name = "scope",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .default_k = 0,
     .default_v = 0,
     .per_plane = true,
     .help = "each head on its own, or all heads of a layer at once",
     .choices = kScopes},
    OnParameter(kOn, "transform this plane"),
};

constexpr StageInfo kInfo = {
    .id = 0x0205,
    .name = "klt",
    .kind = StageKind::kTransform,
    .parameters = kParameters,
    .summary = "principal components of heads or layers, from a calibration artefact",
};

// Rows whose copies are in scratch memory at a time.
constexpr std::size_t kRows = 64;

class Klt : public Transform {
 public:
  explicit Klt(const Settings& settings) : settings_(settings) {}

  Status Forward(const PlaneContext& plane, RealPlane values, ByteWriter& /*side*/) const override {
    if (!On(plane.kind)) return {};
    KVSERVE_ASSIGN(const KarhunenLoeve* klt, Calibrated(plane, values.columns()));
    const auto turned = Transposed(*klt, *plane.arena);
    const auto centred = plane.arena->Take<float>(kRows * klt->columns);
    ForEachBlock(values, klt->columns, [&](std::size_t group, float* block, std::size_t rows) {
      const float* const mean = klt->mean.data() + group * klt->columns;
      for (std::size_t row = 0; row < rows; ++row) {
        const float* const from = block + row * values.columns();
        for (std::size_t c = 0; c < klt->columns; ++c) {
          centred[row * klt->columns + c] = from[c] - mean[c];
        }
      }
      MultiplyRows(centred.first(rows * klt->columns), klt->columns, Of(turned, *klt, group),
                   klt->columns, block, values.columns());
    });
    return {};
  }

  Status Inverse(const PlaneContext& plane, RealPlane values, ByteReader& /*side*/) const override {
    if (!On(plane.kind)) return {};
    KVSERVE_ASSIGN(const KarhunenLoeve* klt, Calibrated(plane, values.columns()));
    const auto components = plane.arena->Take<float>(kRows * klt->columns);
    ForEachBlock(values, klt->columns, [&](std::size_t group, float* block, std::size_t rows) {
      const float* const mean = klt->mean.data() + group * klt->columns;
      for (std::size_t row = 0; row < rows; ++row) {
        std::copy_n(block + row * values.columns(), klt->columns,
                    components.data() + row * klt->columns);
      }
      MultiplyRows(components.first(rows * klt->columns), klt->columns, Of(klt->basis, *klt, group),
                   klt->columns, block, values.columns());
      for (std::size_t row = 0; row < rows; ++row) {
        float* const to = block + row * values.columns();
        for (std::size_t c = 0; c < klt->columns; ++c) to[c] += mean[c];
      }
    });
    return {};
  }

  [[nodiscard]] bool needs_artefact() const override {
    return On(PlaneKind::kKey) || On(PlaneKind::kValue);
  }
  [[nodiscard]] bool needs_unrotated_keys() const override { return On(PlaneKind::kKey); }
  [[nodiscard]] ScaleSource scale_source(PlaneKind kind) const override {
    return On(kind) ? ScaleSource::kCalibrated : ScaleSource::kUnit;
  }

 private:
  [[nodiscard]] bool On(PlaneKind kind) const { return settings_.integer(kOn, kind) != 0; }

  [[nodiscard]] Result<const KarhunenLoeve*> Calibrated(const PlaneContext& plane,
                                                        std::size_t columns) const {
    const CalibrationArtefact* artefact = plane.frame == nullptr ? nullptr : plane.frame->artefact;
    const bool joint = settings_.integer(kScope, plane.kind) == kJoint;
    const KarhunenLoeve* klt = nullptr;
    if (artefact != nullptr) {
      klt = joint ? artefact->klt_joint(plane.layer, plane.kind)
                  : artefact->klt_heads(plane.layer, plane.kind);
    }
    if (klt == nullptr) {
      return MakeError(ErrorCode::kMismatch,
                       joint ? "the calibration artefact has no KLT over all heads of this plane; "
                               "scope=head needs none"
                             : "the calibration artefact has no KLT of this plane's heads");
    }
    if (klt->mean.size() != columns) {
      return MakeError(ErrorCode::kMismatch,
                       "the calibration artefact has a KLT of " + std::to_string(klt->mean.size()) +
                           " columns where the plane has " + std::to_string(columns));
    }
    return klt;
  }

  // [group][column][component]
  static std::span<const float> Transposed(const KarhunenLoeve& klt, Arena& arena) {
    const std::size_t n = klt.columns;
    const auto turned = arena.Take<float>(klt.basis.size());
    for (std::size_t at = 0; at < klt.basis.size(); at += n * n) {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t c = 0; c < n; ++c) turned[at + c * n + i] = klt.basis[at + i * n + c];
      }
    }
    return turned;
  }

  static std::span<const float> Of(std::span<const float> matrices, const KarhunenLoeve& klt,
                                   std::size_t group) {
    const std::size_t size = std::size_t{klt.columns} * klt.columns;
    return matrices.subspan(group * size, size);
  }

  // visit(group, its first value, rows) for some rows at a time.
  template <typename Visit>
  static void ForEachBlock(RealPlane values, std::size_t columns, const Visit& visit) {
    for (std::size_t row = 0; row < values.tokens; row += kRows) {
      const std::size_t rows = std::min<std::size_t>(kRows, values.tokens - row);
      float* const first = values.data + row * values.columns();
      for (std::size_t group = 0; group * columns < values.columns(); ++group) {
        visit(group, first + group * columns, rows);
      }
    }
  }

  Settings settings_;
};

}  // namespace

const StageEntry& KltStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_transform = [](const Settings& settings) -> Result<std::unique_ptr<Transform>> {
        return std::make_unique<Klt>(settings);
      }};
  return entry;
}

}  // namespace kvserve
