// Takes out of each channel what tokens have in common: a mean, and if asked a scale. Keys of some
// models have biases hundreds of times their spread, which a shared range would be spent on. The
// statistics are those of the frame, sent in side bytes as coarsely as the spread allows, or a
// calibration artefact's. The request's first token is left out of a frame's statistics: as an
// attention sink it has outliers that no other token shares, and would drag the means along.
#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "kernels/affine/affine.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kSource = 1;
constexpr std::uint8_t kCenter = 2;  // and 3 for V
constexpr std::uint8_t kScale = 4;   // and 5

constexpr std::string_view kSources[] = {"frame", "calibrated"};
constexpr std::uint32_t kCalibrated = 1;

constexpr ParameterInfo kParameters[] = {
    {.id = kSource,
     .name = "source",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .default_k = 0,
     .help = "statistics of the frame, sent with it, or of a calibration artefact",
     .choices = kSources},
    {.id = kCenter,
     .name = "center",
     .type = ParameterType::kBoolean,
     .low = 0,
     .high = 1,
     .default_k = 1,
     .default_v = 1,
     .per_plane = true,
     .help = "subtract the mean of each channel"},
    {.id = kScale,
     .name = "scale",
     .type = ParameterType::kBoolean,
     .low = 0,
     .high = 1,
     .default_k = 0,
     .default_v = 0,
     .per_plane = true,
     .help = "divide each channel by its deviation"},
};

constexpr StageInfo kInfo = {
    .id = 0x0202,
    .name = "affine",
    .kind = StageKind::kTransform,
    .parameters = kParameters,
    .summary = "mean and scale of each channel taken out",
};

// Means are integers times a power of two: fine enough for the spread of the channels, and never
// more digits than float32 has.
constexpr int kMeanDigits = 24;
constexpr int kLowestMeanExponent = -149;
constexpr int kHighestMeanExponent = 104;
constexpr int kStepsOfSpread = 8;

// Scales are eighths of octaves above a base, all of them normal numbers.
constexpr int kLowestScaleBase = -126;
constexpr int kHighestScaleBase = 96;
constexpr int kOctaves = 32;
constexpr double kLeastScale = 0x1p-8;  // of the root mean square of all deviations

struct Columns : PlaneState {
  std::span<const float> mean;
  std::span<const float> scale;
  std::span<const float> factor;  // 1 / scale; encoder only
};

struct Switches {
  bool center = false;
  bool scale = false;
  [[nodiscard]] bool any() const { return center || scale; }
};

struct Statistics {
  std::span<double> mean;
  std::span<double> deviation;
  double spread = 0.0;  // root mean square of the deviations
};

// Of at least one row.
Statistics Measure(std::span<const float> values, std::size_t columns, Arena& arena) {
  Statistics found{arena.TakeZeroed<double>(columns), arena.TakeZeroed<double>(columns)};
  AddColumnSums(values, found.mean, found.deviation);
  const std::size_t row_count = values.size() / columns;
  const auto rows = static_cast<double>(row_count);
  double sum = 0.0;
  for (std::size_t c = 0; c < columns; ++c) {
    const double mean = found.mean[c] / rows;
    const double variance = std::max(0.0, found.deviation[c] / rows - mean * mean);
    found.mean[c] = mean;
    found.deviation[c] = std::sqrt(variance);
    sum += variance;
  }
  found.spread = std::sqrt(sum / static_cast<double>(columns));
  return found;
}

// Writes the means and gives them as a decoder will read them.
void WriteMeans(const Statistics& found, ByteWriter& side, std::span<float> means) {
  double largest = 0.0;
  for (const double mean : found.mean) largest = std::max(largest, std::fabs(mean));
  int exponent = kLowestMeanExponent;
  if (found.spread > 0.0) exponent = std::ilogb(found.spread / kStepsOfSpread);
  if (largest > 0.0) exponent = std::max(exponent, std::ilogb(largest) - (kMeanDigits - 1));
  exponent = std::clamp(exponent, kLowestMeanExponent, kHighestMeanExponent);
  side.Put(static_cast<std::int16_t>(exponent));
  for (std::size_t c = 0; c < means.size(); ++c) {
    const double steps = std::nearbyint(std::ldexp(found.mean[c], -exponent));
    const auto count = static_cast<std::int64_t>(
        std::clamp(steps, -std::ldexp(1.0, kMeanDigits) + 1, std::ldexp(1.0, kMeanDigits) - 1));
    side.PutVarint(count >= 0 ? static_cast<std::uint64_t>(2 * count)
                              : static_cast<std::uint64_t>(-2 * count - 1));
    means[c] = std::ldexp(static_cast<float>(count), exponent);
  }
}

Status ReadMeans(ByteReader& side, std::span<float> means) {
  KVSERVE_ASSIGN(const auto exponent, side.Get<std::int16_t>());
  if (exponent < kLowestMeanExponent || exponent > kHighestMeanExponent) {
    return MakeError(ErrorCode::kCorruptData, "exponent of the means is out of range");
  }
  for (float& mean : means) {
    KVSERVE_ASSIGN(const std::uint64_t code, side.GetVarint());
    const std::uint64_t magnitude = code / 2 + code % 2;
    if (magnitude >> kMeanDigits != 0) {
      return MakeError(ErrorCode::kCorruptData, "a mean has too many digits");
    }
    const float value = std::ldexp(static_cast<float>(magnitude), exponent);
    mean = code % 2 == 0 ? value : -value;
  }
  return {};
}

float ScaleOf(int base, std::uint8_t code) {
  return std::ldexp(1.0F + static_cast<float>(code % 8) / 8.0F, base + code / 8);
}

// The same for scales, rounded down to the next eighth of an octave.
void WriteScales(const Statistics& found, ByteWriter& side, std::span<float> scales) {
  const double largest = *std::max_element(found.deviation.begin(), found.deviation.end());
  int base = 0;  // all constant: scales of 1
  if (largest > 0.0) {
    base = std::clamp(std::ilogb(largest) - (kOctaves - 1), kLowestScaleBase, kHighestScaleBase);
  }
  side.Put(static_cast<std::int16_t>(base));
  for (std::size_t c = 0; c < scales.size(); ++c) {
    const double deviation = std::max(found.deviation[c], kLeastScale * found.spread);
    std::uint8_t code = 0;
    if (deviation > 0.0 && std::ilogb(deviation) >= base) {
      const int octave = std::ilogb(deviation);
      const auto eighth = static_cast<int>((std::ldexp(deviation, -octave) - 1.0) * 8.0);
      code = static_cast<std::uint8_t>(8 * (octave - base) + eighth);
    }
    side.Put(code);
    scales[c] = ScaleOf(base, code);
  }
}

Status ReadScales(ByteReader& side, std::span<float> scales) {
  KVSERVE_ASSIGN(const auto base, side.Get<std::int16_t>());
  if (base < kLowestScaleBase || base > kHighestScaleBase) {
    return MakeError(ErrorCode::kCorruptData, "base of the scales is out of range");
  }
  KVSERVE_ASSIGN(const auto codes, side.GetBytes(scales.size()));
  for (std::size_t c = 0; c < scales.size(); ++c) {
    scales[c] = ScaleOf(base, static_cast<std::uint8_t>(codes[c]));
  }
  return {};
}

// Rows that count: all but the request's first token.
std::size_t SkippedRows(const PlaneContext& plane) {
  return plane.tokens.begin == 0 && !plane.tokens.empty() ? 1 : 0;
}

std::span<float> Filled(Arena& arena, std::size_t count, float value) {
  const auto values = arena.Take<float>(count);
  std::fill(values.begin(), values.end(), value);
  return values;
}

class Affine : public Transform, public RowTransform {
 public:
  explicit Affine(const Settings& settings) : settings_(settings) {}

  Status Forward(const PlaneContext& plane, RealPlane values, ByteWriter& side) const override {
    if (needs_artefact()) return Transform::Forward(plane, values, side);
    const Switches on = For(plane.kind);
    const std::size_t columns = values.columns();
    const auto counted = values.span().subspan(SkippedRows(plane) * columns);
    if (!on.any() || counted.empty()) return {};
    const Statistics found = Measure(counted, columns, *plane.arena);
    const auto means = Filled(*plane.arena, columns, 0.0F);
    const auto scales = Filled(*plane.arena, columns, 1.0F);
    if (on.center) WriteMeans(found, side, means);
    if (on.scale) WriteScales(found, side, scales);
    CenterColumns(values.span(), means, Reciprocals(scales, *plane.arena));
    return {};
  }

  Status Inverse(const PlaneContext& plane, RealPlane values, ByteReader& side) const override {
    if (needs_artefact()) return Transform::Inverse(plane, values, side);
    const Switches on = For(plane.kind);
    const std::size_t columns = values.columns();
    if (!on.any() || values.tokens == SkippedRows(plane)) return {};
    const auto means = Filled(*plane.arena, columns, 0.0F);
    const auto scales = Filled(*plane.arena, columns, 1.0F);
    if (on.center) KVSERVE_TRY(ReadMeans(side, means));
    if (on.scale) KVSERVE_TRY(ReadScales(side, scales));
    RestoreColumns(values.span(), scales, means);
    return {};
  }

  [[nodiscard]] bool needs_artefact() const override {
    return settings_.integer(kSource) == kCalibrated;
  }
  [[nodiscard]] ScaleSource scale_source(PlaneKind kind) const override {
    if (!For(kind).any()) return ScaleSource::kUnit;
    return needs_artefact() ? ScaleSource::kCalibrated : ScaleSource::kFrame;
  }
  // A frame's own statistics need the whole plane.
  [[nodiscard]] const RowTransform* rows() const override {
    return needs_artefact() ? this : nullptr;
  }

  // Null where nothing is to be done.
  [[nodiscard]] Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                               Direction /*direction*/) const override {
    const Switches on = For(plane.kind);
    if (!on.any()) return nullptr;
    KVSERVE_ASSIGN(const ChannelStatistics* found, Calibrated(plane, shape.columns()));
    auto* columns = plane.arena->New<Columns>();
    columns->mean = found->mean;
    columns->scale = found->scale;
    if (!on.center) columns->mean = Filled(*plane.arena, shape.columns(), 0.0F);
    if (!on.scale) columns->scale = Filled(*plane.arena, shape.columns(), 1.0F);
    columns->factor = Reciprocals(columns->scale, *plane.arena);
    return columns;
  }
  void ForwardRows(const PlaneState* state, std::uint32_t /*first_row*/,
                   RealPlane rows) const override {
    if (state == nullptr) return;
    const auto& columns = static_cast<const Columns&>(*state);
    CenterColumns(rows.span(), columns.mean, columns.factor);
  }
  void InverseRows(const PlaneState* state, std::uint32_t /*first_row*/,
                   RealPlane rows) const override {
    if (state == nullptr) return;
    const auto& columns = static_cast<const Columns&>(*state);
    RestoreColumns(rows.span(), columns.scale, columns.mean);
  }

 private:
  [[nodiscard]] Switches For(PlaneKind kind) const {
    return {settings_.integer(kCenter, kind) != 0, settings_.integer(kScale, kind) != 0};
  }

  static Result<const ChannelStatistics*> Calibrated(const PlaneContext& plane,
                                                     std::size_t columns) {
    const CalibrationArtefact* artefact = plane.frame == nullptr ? nullptr : plane.frame->artefact;
    const ChannelStatistics* found =
        artefact == nullptr ? nullptr : artefact->statistics(plane.layer, plane.kind);
    if (found == nullptr) {
      return MakeError(ErrorCode::kMismatch,
                       "the calibration artefact has no channel statistics for this plane");
    }
    if (found->mean.size() != columns || found->scale.size() != columns) {
      return MakeError(ErrorCode::kMismatch, "the calibration artefact has statistics of " +
                                                 std::to_string(found->mean.size()) +
                                                 " channels where the plane has " +
                                                 std::to_string(columns));
    }
    return found;
  }

  static std::span<const float> Reciprocals(std::span<const float> scales, Arena& arena) {
    const auto factors = arena.Take<float>(scales.size());
    std::transform(scales.begin(), scales.end(), factors.begin(),
                   [](float scale) { return 1.0F / scale; });
    return factors;
  }

  Settings settings_;
};

}  // namespace

const StageEntry& AffineStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_transform = [](const Settings& settings) -> Result<std::unique_ptr<Transform>> {
        return std::make_unique<Affine>(settings);
      }};
  return entry;
}

}  // namespace kvserve
