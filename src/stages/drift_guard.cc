#include "stages/drift_guard.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/fixed_text.h"
#include "base/try.h"
#include "pipeline/frame_statistics.h"
#include "pipeline/stage_lookup.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

// Beyond these KV falls back; measured on many kinds of text (docs/CALIBRATION.md, "Drift").
struct Bounds {
  double energy;
  double gain;
  // Keys that are both harder to predict and larger in what is left; either alone does no harm.
  double key_loss;
  double key_residual;
};
// What texts were trained on look like is no measure for others: these bounds are wide.
constexpr Bounds kBounds = {3.0, 5.0, 1.0, 2.1};
constexpr Bounds kInKindBounds = {1.85, 3.0, 0.0, 0.7};
constexpr double kMostCodeLength = 1.2;
// Frames that end nearer to the prompt's end than this have finer tokens, and longer codes: twice
// as long in the last one.
constexpr std::uint32_t kFineTokens = 512;
constexpr double kMostFineCodeLength = 2.2;

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

void FindReason(const Bounds& most, bool near_end, FrameDrift& drift) {
  const auto beyond = [&](const char* cause, const char* what, double value, const char* unit,
                          double bound) {
    if (value <= bound || !drift.cause.empty()) return;
    drift.cause = cause;
    drift.reason = std::string(what) + " " + Fixed(value, 2) + unit + ", above " + Fixed(bound, 2);
  };
  beyond("energy", "energy of whitened values", drift.energy, " deviations off", most.energy);
  beyond("prediction_gain", "prediction gain", drift.prediction_gain, " deviations off", most.gain);
  if (drift.key_gain_loss > most.key_loss) {
    beyond("keys", "what prediction leaves of keys", drift.key_residual, " deviations up",
           most.key_residual);
  }
  beyond("code_length", "code length", drift.code_length_ratio, " times the expected",
         near_end ? kMostFineCodeLength : kMostCodeLength);
}

FrameDrift DriftOf(std::span<const PlaneDistance> planes, double code_length_ratio) {
  const FrameDistance distance = Summarize(planes);
  FrameDrift drift;
  drift.energy = distance.energy;
  drift.prediction_gain = distance.gain;
  drift.key_gain_loss = distance.key_loss;
  drift.key_residual = distance.key_residual;
  drift.code_length_ratio = code_length_ratio;
  return drift;
}

// Adds a plane of one frame to what `sums` holds of `count` others.
void AddPlane(const PlaneDistance& plane, PlaneDistance& sum, double& count) {
  if (!plane.compared) return;
  sum.compared = true;
  sum.predicted = plane.predicted;
  sum.energy += plane.energy;
  sum.gain += plane.gain;
  sum.residual += plane.residual;
  count += 1;
}

}  // namespace

void DriftMemory::Add(Frame frame) {
  std::erase_if(frames_, [&](const Frame& other) {
    return other.tokens.begin > frame.tokens.begin ||
           (other.tokens.begin == frame.tokens.begin && other.first_layer == frame.first_layer);
  });
  frames_.push_back(std::move(frame));
}

FrameDrift DriftMemory::Drift(Arena& arena) const {
  if (frames_.empty()) return {};
  // Encoders of other geometries may have added some.
  const auto least =
      std::ranges::min_element(frames_, {}, [](const Frame& frame) { return frame.planes.size(); });
  const std::size_t planes = least->planes.size();
  const auto sums = arena.Take<PlaneDistance>(planes);
  for (std::size_t p = 0; p < planes; ++p) {
    sums[p] = {};
    double count = 0;
    for (const Frame& frame : frames_) AddPlane(frame.planes[p], sums[p], count);
    sums[p].energy /= std::max(count, 1.0);
    sums[p].gain /= std::max(count, 1.0);
    sums[p].residual /= std::max(count, 1.0);
  }
  double ratio = 0;
  double count = 0;
  for (const Frame& frame : frames_) {
    if (frame.near_end) continue;
    ratio += frame.code_length_ratio;
    count += 1;
  }
  return DriftOf(sums, count > 0 ? ratio / count : frames_.back().code_length_ratio);
}

bool DriftMemory::near_end() const {
  return std::all_of(frames_.begin(), frames_.end(),
                     [](const Frame& frame) { return frame.near_end; });
}

Result<DriftGuard> DriftGuard::Create(const Profile& profile, const CalibrationArtefact& artefact) {
  if (artefact.contents().frame_expectation.planes.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a fallback profile needs a calibration artefact that says what frames to "
                     "expect, and this one does not");
  }
  return DriftGuard(artefact, ExpectedBits(profile, artefact));
}

Result<FrameDrift> DriftGuard::Judge(const ConstKvView& view, std::uint32_t prompt_tokens,
                                     std::uint64_t coded_bytes, DriftMemory* memory,
                                     Arena& arena) const {
  KVSERVE_ASSIGN(const auto found, MeasureFrame(view, *artefact_, arena));
  const auto planes = DistancesOf(found, artefact_->contents().frame_expectation, arena);
  const std::uint64_t values = ValuesOf(view);
  double ratio = 0;
  if (expected_bits_ > 0 && values > 0) {
    ratio = 8.0 * static_cast<double>(coded_bytes) / static_cast<double>(values) / expected_bits_;
  }
  // Where the prompt's end is not known, it may be here.
  bool near_end = prompt_tokens == 0 || view.tokens.end + kFineTokens > prompt_tokens;
  FrameDrift drift;
  if (memory == nullptr) {
    drift = DriftOf(planes, ratio);
  } else {
    const std::uint32_t first_layer = view.layers.empty() ? 0 : view.layers.front().layer;
    memory->Add({view.tokens, first_layer, ratio, near_end, {planes.begin(), planes.end()}});
    drift = memory->Drift(arena);
    near_end = memory->near_end();
  }
  FindReason(artefact_->contents().frame_expectation.in_kind ? kInKindBounds : kBounds, near_end,
             drift);
  return drift;
}

}  // namespace kvserve
