// Entropy coding with the tables of a calibration artefact: every symbol's table is found by its
// column, the class of its token and the energies of the same token in earlier planes, so nothing
// but a shift per plane is sent beside the symbols. Since contexts never look at other tokens, a
// frame is cut by tokens, over all planes, into pieces that are coded apart.
#include <algorithm>
#include <memory>
#include <mutex>

#include "base/try.h"
#include "pipeline/code_contexts.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kPoint = 1;
constexpr std::uint8_t kEnergy = 2;
constexpr std::uint8_t kShift = 3;

constexpr ParameterInfo kParameters[] = {
    {.id = kPoint,
     .name = "point",
     .type = ParameterType::kInteger,
     .low = 0,
     .high = kMostPoints,
     .help = "number of the artefact's operating point, at most the last; 0: what suits each frame "
             "best"},
    {.id = kEnergy,
     .name = "energy",
     .type = ParameterType::kBoolean,
     .low = 0,
     .high = 1,
     .default_k = 1,
     .help = "tables follow the token's energy in earlier planes"},
    {.id = kShift,
     .name = "shift",
     .type = ParameterType::kBoolean,
     .low = 0,
     .high = 1,
     .default_k = 1,
     .help = "tables are shifted by what suits each plane of a frame best"},
};

constexpr StageInfo kInfo = {
    .id = 0x0406,
    .name = "contexts",
    .kind = StageKind::kCodec,
    .lossless = true,
    .parameters = kParameters,
    .summary = "rANS with calibrated tables, found by column, token class and energy",
};

Status CheckClasses(std::span<const SymbolPlane> planes) {
  for (const SymbolPlane& plane : planes) {
    if (plane.token_classes.empty() || plane.token_classes.size() == plane.tokens) continue;
    return MakeError(ErrorCode::kInternal, "a plane's rows and their classes differ in number");
  }
  return {};
}

class Contexts : public Codec {
 public:
  explicit Contexts(const Settings& settings)
      : point_(settings.integer(kPoint)),
        energy_(settings.integer(kEnergy) == 1),
        shift_(settings.integer(kShift) == 1) {}

  Status Encode(const FrameContext& frame, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    KVSERVE_TRY(CheckClasses(planes));
    KVSERVE_ASSIGN(const auto model, Model(frame.artefact));
    const ContextChoices choices = {
        .point = point_ == 0 ? model->points() : std::min<std::size_t>(point_, model->points()) - 1,
        .energy = energy_,
        .shift = shift_};
    return EncodeContexts(frame, *model, choices, planes, out);
  }

  Status Decode(const FrameContext& frame, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    KVSERVE_TRY(CheckClasses(planes));
    KVSERVE_ASSIGN(const auto model, Model(frame.artefact));
    return DecodeContexts(frame, *model, energy_, in, planes);
  }

  [[nodiscard]] std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    return MaxContextBytes(planes);
  }

  [[nodiscard]] bool needs_artefact() const override { return true; }

 private:
  // That of the last artefact is kept, since frames of a request follow each other.
  [[nodiscard]] Result<std::shared_ptr<const ContextModel>> Model(
      const CalibrationArtefact* artefact) const {
    if (artefact == nullptr) {
      return MakeError(ErrorCode::kMismatch, "contexts: there is no calibration artefact");
    }
    const std::lock_guard lock(mutex_);
    if (model_ == nullptr || artefact_ != artefact || fingerprint_ != artefact->fingerprint()) {
      KVSERVE_ASSIGN(model_, ContextModel::Create(*artefact));
      artefact_ = artefact;
      fingerprint_ = artefact->fingerprint();
    }
    return model_;
  }

  std::uint32_t point_;  // 0: any
  bool energy_;
  bool shift_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const ContextModel> model_;
  mutable const CalibrationArtefact* artefact_ = nullptr;
  mutable Fingerprint fingerprint_;
};

}  // namespace

const StageEntry& ContextsStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_codec = [](const Settings& settings) -> Result<std::unique_ptr<Codec>> {
        return std::make_unique<Contexts>(settings);
      }};
  return entry;
}

}  // namespace kvserve
