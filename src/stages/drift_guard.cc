#include "stages/drift_guard.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/fixed_text.h"
#include "base/try.h"
#include "pipeline/frame_statistics.h"
#include "pipeline/stage_lookup.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

// Beyond these a frame falls back. Frames of texts of the calibration's kinds have distances around
// 1, and other texts that were coded as well up to 3.4 (docs/CALIBRATION.md, "Drift").
constexpr double kMostDistance = 3.5;
constexpr double kMostCodeLength = 1.75;

// The step of the stage `whiten`, the geometric mean of those for K and V; 0: there is none.
double WhiteningStep(const Profile& profile) {
  for (const StageSpec& stage : profile.stages) {
    const StageEntry* const entry = FindStage(BuiltinStages(), stage.id);
    if (entry == nullptr || entry->info->name != "whiten") continue;
    for (const ParameterInfo& parameter : entry->info->parameters) {
      if (parameter.name != "step") continue;
      const Settings settings(*entry->info, stage.parameters);
      return std::sqrt(settings.value(parameter.id, PlaneKind::kKey) *
                       settings.value(parameter.id, PlaneKind::kValue));
    }
  }
  return 0.0;
}

// Of the artefact's operating points, linear in the logarithm of the step between them.
double ExpectedBits(const Profile& profile, const CalibrationArtefact& artefact) {
  const CodeTables* const tables = artefact.code_tables();
  const double step = WhiteningStep(profile);
  if (tables == nullptr || tables->points.empty() || step <= 0) return 0.0;
  const auto above =
      std::find_if(tables->points.begin(), tables->points.end(),
                   [&](const CodeTables::Point& point) { return point.step >= step; });
  if (above == tables->points.begin()) return above->bits_per_value;
  if (above == tables->points.end()) return tables->points.back().bits_per_value;
  const CodeTables::Point& below = *(above - 1);
  const double share = std::log(step / below.step) / std::log(above->step / below.step);
  return below.bits_per_value + share * (above->bits_per_value - below.bits_per_value);
}

std::uint64_t ValuesOf(const ConstKvView& view) {
  std::uint64_t values = 0;
  for (const auto& layer : view.layers) values += layer.k.values() + layer.v.values();
  return values;
}

std::string Reason(const FrameDrift& drift) {
  const auto beyond = [](const char* what, double value, const char* unit, double bound) {
    return std::string(what) + " " + Fixed(value, 2) + unit + ", above " + Fixed(bound, 2);
  };
  if (!(drift.energy <= kMostDistance)) {
    return beyond("energy of whitened values", drift.energy, " deviations off", kMostDistance);
  }
  if (!(drift.prediction_gain <= kMostDistance)) {
    return beyond("prediction gain", drift.prediction_gain, " deviations off", kMostDistance);
  }
  if (!(drift.code_length_ratio <= kMostCodeLength)) {
    return beyond("code length", drift.code_length_ratio, " times the expected", kMostCodeLength);
  }
  return {};
}

}  // namespace

Result<DriftGuard> DriftGuard::Create(const Profile& profile, const CalibrationArtefact& artefact) {
  if (artefact.contents().frame_expectation.planes.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a fallback profile needs a calibration artefact that says what frames to "
                     "expect, and this one does not");
  }
  return DriftGuard(artefact, ExpectedBits(profile, artefact));
}

Result<FrameDrift> DriftGuard::Judge(const ConstKvView& view, std::uint64_t coded_bytes,
                                     Arena& arena) const {
  KVSERVE_ASSIGN(const auto found, MeasureFrame(view, *artefact_, arena));
  const FrameDistance distance = DistanceOf(found, artefact_->contents().frame_expectation);
  FrameDrift drift;
  drift.energy = distance.energy;
  drift.prediction_gain = distance.gain;
  const std::uint64_t values = ValuesOf(view);
  if (expected_bits_ > 0 && values > 0) {
    drift.code_length_ratio =
        8.0 * static_cast<double>(coded_bytes) / static_cast<double>(values) / expected_bits_;
  }
  drift.reason = Reason(drift);
  return drift;
}

}  // namespace kvserve
