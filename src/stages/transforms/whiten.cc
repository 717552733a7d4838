// Whitening: turns a plane into components whose errors all count alike, in steps of a size that
// the profile gives, so that one step serves every later stage. The matrices are an artefact's: the
// decoder multiplies by its rows of bytes, the encoder by their inverse. For keys they are those
// before RoPE, hence `unrope` stands before it.
#include <algorithm>
#include <string>

#include "base/try.h"
#include "kernels/gemm/gemm.h"
#include "pipeline/plane_switch.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kStep = 1;  // and 2 for V
constexpr std::uint8_t kOn = 3;    // and 4

constexpr ParameterInfo kParameters[] = {
    {.id = kStep,
     .name = "step",
     .type = ParameterType::kReal,
     .low = 1e-3,
     .high = 1e3,
     .default_k = 1,
     .default_v = 1,
     .per_plane = true,
     .help = "in calibrated units of error; 1 costs 0.01 nats per token at 1024 of context"},
    OnParameter(kOn, "transform this plane"),
};

constexpr StageInfo kInfo = {
    .id = 0x0206,
    .name = "whiten",
    .kind = StageKind::kTransform,
    .parameters = kParameters,
    .summary = "components whose errors count alike, from a calibration artefact",
};

// Rows whose copies are in scratch memory at a time: enough for a pass over the matrix to be worth
// it, few enough for the copies to stay near.
std::size_t RowsAtATime(std::size_t columns) {
  constexpr std::size_t kCopiedFloats = 24576;
  return std::clamp<std::size_t>(kCopiedFloats / columns, 32, 128);
}

struct OneWay : PlaneState {
  std::size_t columns = 0;      // of a group
  std::span<const float> mean;  // [group][column]
  std::span<const float>
      matrix;  // [group][column][component], backwards [group][component][column]
  float step = 1.0F;
  std::span<float> copies;  // of RowsAtATime rows of a group
};

class Whiten : public Transform, public RowTransform {
 public:
  explicit Whiten(const Settings& settings) : settings_(settings) {}

  [[nodiscard]] const RowTransform* rows() const override { return this; }
  [[nodiscard]] bool needs_artefact() const override {
    return On(PlaneKind::kKey) || On(PlaneKind::kValue);
  }
  [[nodiscard]] bool gives_components() const override { return needs_artefact(); }
  [[nodiscard]] bool needs_unrotated_keys() const override { return On(PlaneKind::kKey); }
  [[nodiscard]] ScaleSource scale_source(PlaneKind kind) const override {
    return On(kind) ? ScaleSource::kCalibrated : ScaleSource::kUnit;
  }

  // Null where nothing is transformed.
  [[nodiscard]] Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                               Direction direction) const override {
    if (!On(plane.kind)) return nullptr;
    KVSERVE_ASSIGN(const Whitening* whitening, Calibrated(plane, shape.columns()));
    const CalibrationArtefact& artefact = *plane.frame->artefact;
    auto* matrices = plane.arena->New<OneWay>();
    matrices->columns = whitening->columns;
    matrices->mean = whitening->mean;
    if (direction == Direction::kForward) {
      KVSERVE_ASSIGN(matrices->matrix, artefact.whitening_forward(plane.layer, plane.kind));
    } else {
      KVSERVE_ASSIGN(matrices->matrix, artefact.whitening_inverse(plane.layer, plane.kind));
    }
    matrices->step = static_cast<float>(settings_.value(kStep, plane.kind));
    matrices->copies =
        plane.arena->Take<float>(RowsAtATime(whitening->columns) * whitening->columns);
    return matrices;
  }

  void ForwardRows(const PlaneState* state, std::uint32_t /*first_row*/,
                   RealPlane rows) const override {
    if (state == nullptr) return;
    const auto& matrices = *static_cast<const OneWay*>(state);
    const std::size_t n = matrices.columns;
    ForEachBlock(rows, n, [&](std::size_t group, float* block, std::size_t count) {
      const float* const mean = matrices.mean.data() + group * n;
      for (std::size_t row = 0; row < count; ++row) {
        const float* const from = block + row * rows.columns();
        float* const to = matrices.copies.data() + row * n;
        for (std::size_t c = 0; c < n; ++c) to[c] = (from[c] - mean[c]) / matrices.step;
      }
      MultiplyRows(matrices.copies.first(count * n), n,
                   matrices.matrix.subspan(group * n * n, n * n), n, block, rows.columns());
    });
  }

  void InverseRows(const PlaneState* state, std::uint32_t /*first_row*/,
                   RealPlane rows) const override {
    if (state == nullptr) return;
    const auto& matrices = *static_cast<const OneWay*>(state);
    const std::size_t n = matrices.columns;
    ForEachBlock(rows, n, [&](std::size_t group, float* block, std::size_t count) {
      for (std::size_t row = 0; row < count; ++row) {
        const float* const from = block + row * rows.columns();
        float* const to = matrices.copies.data() + row * n;
        for (std::size_t c = 0; c < n; ++c) to[c] = from[c] * matrices.step;
      }
      MultiplyRows(matrices.copies.first(count * n), n,
                   matrices.matrix.subspan(group * n * n, n * n), n, block, rows.columns());
      const float* const mean = matrices.mean.data() + group * n;
      for (std::size_t row = 0; row < count; ++row) {
        float* const to = block + row * rows.columns();
        for (std::size_t c = 0; c < n; ++c) to[c] += mean[c];
      }
    });
  }

 private:
  [[nodiscard]] bool On(PlaneKind kind) const { return settings_.integer(kOn, kind) != 0; }

  static Result<const Whitening*> Calibrated(const PlaneContext& plane, std::size_t columns) {
    const CalibrationArtefact* artefact = plane.frame->artefact;
    const Whitening* whitening =
        artefact == nullptr ? nullptr : artefact->whitening(plane.layer, plane.kind);
    if (whitening == nullptr) {
      return MakeError(ErrorCode::kMismatch,
                       "the calibration artefact has no whitening of this plane");
    }
    if (whitening->mean.size() != columns) {
      return MakeError(ErrorCode::kMismatch, "the calibration artefact whitens " +
                                                 std::to_string(whitening->mean.size()) +
                                                 " columns where the plane has " +
                                                 std::to_string(columns));
    }
    return whitening;
  }

  // visit(group, its first value, rows) for some rows at a time.
  template <typename Visit>
  static void ForEachBlock(RealPlane values, std::size_t columns, const Visit& visit) {
    const std::size_t most = RowsAtATime(columns);
    for (std::size_t row = 0; row < values.tokens; row += most) {
      const std::size_t rows = std::min<std::size_t>(most, values.tokens - row);
      float* const first = values.data + row * values.columns();
      for (std::size_t group = 0; group * columns < values.columns(); ++group) {
        visit(group, first + group * columns, rows);
      }
    }
  }

  Settings settings_;
};

}  // namespace

const StageEntry& WhitenStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_transform = [](const Settings& settings) -> Result<std::unique_ptr<Transform>> {
        return std::make_unique<Whiten>(settings);
      }};
  return entry;
}

}  // namespace kvserve
