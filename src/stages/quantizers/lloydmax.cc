// The quantizer of TurboQuant: each vector of a token and head is divided by its root mean square
// and its coordinates, which a random rotation before this stage makes nearly Gaussian, go to the
// Lloyd-Max codebook of the standard normal distribution. A scale per vector is all that is sent
// beside the symbols.
// Source: Zandieh et al., "TurboQuant: Online Vector Quantization with Near-optimal Distortion
// Rate", 2025 (its first stage, without the residual's sign bits).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "base/try.h"
#include "kernels/codebook/lloyd_max.h"
#include "kernels/codebook/scaled_runs.h"
#include "pipeline/raw_first_row.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kLevels = 1;  // and 2 for V, as below
constexpr std::uint8_t kGroup = 3;
constexpr std::uint8_t kScale = 5;
constexpr std::uint8_t kRawFirst = 7;  // not per plane

constexpr std::string_view kScales[] = {"rms", "norm"};

constexpr ParameterInfo kParameters[] = {
    {.id = kLevels,
     .name = "levels",
     .type = ParameterType::kInteger,
     .low = 2,
     .high = kMostCodebookPoints,
     .default_k = 16,
     .default_v = 8,
     .per_plane = true,
     .help = "number of points of the codebook"},
    {.id = kGroup,
     .name = "group",
     .type = ParameterType::kInteger,
     .low = 8,
     .high = 1024,
     .default_k = 1024,
     .default_v = 1024,
     .per_plane = true,
     .unit = "values",
     .help = "length of the vectors along the head dimension; the last may be shorter"},
    {.id = kScale,
     .name = "scale",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .default_k = 1,
     .default_v = 1,
     .per_plane = true,
     .help = "decode with the vector's root mean square, or so that it keeps its norm",
     .choices = kScales},
    RawFirstParameter(kRawFirst),
};

constexpr StageInfo kInfo = {
    .id = 0x0307,
    .name = "lloydmax",
    .kind = StageKind::kQuantizer,
    .parameters = kParameters,
    .summary = "normal-distribution codebook with a scale per vector of a head",
};

struct Options {
  Options(const Settings& settings, PlaneKind kind)
      : levels(settings.integer(kLevels, kind)),
        group(settings.integer(kGroup, kind)),
        keeps_norm(settings.integer(kScale, kind) != 0) {}
  std::uint32_t levels;
  std::uint32_t group;
  bool keeps_norm;
};

// Vectors below this root mean square are zero: their inverse would not be finite.
constexpr double kLeastRms = 0x1p-100;

struct LloydMaxState : PlaneState {
  LloydMaxState(const Options& options, const RawFirstRow& first, PlaneShape shape)
      : raw(first),
        runs(LloydMaxCodebook(options.levels), options.group, shape.heads, shape.dim),
        count((shape.tokens - raw.rows()) * runs.per_row()),
        keeps_norm(options.keeps_norm) {}

  RawFirstRow raw;
  ScaledRuns runs;
  std::size_t count;                // of runs
  std::span<float> scales;          // [run], as they are sent
  std::span<float> inverses;        // [run]; encoder
  std::span<std::uint8_t> symbols;  // of one vector, and their points; encoder
  std::span<float> points;
  bool keeps_norm;
};

void ObserveVector(LloydMaxState& state, std::span<const float> values, std::size_t run) {
  const double squares = SumOfSquares(values);
  const double rms = std::sqrt(squares / static_cast<double>(values.size()));
  if (rms < kLeastRms) {
    state.inverses[run] = state.scales[run] = 0.0F;
    return;
  }
  state.inverses[run] = static_cast<float>(1.0 / rms);
  state.scales[run] = static_cast<float>(rms);
  if (!state.keeps_norm) return;
  const auto symbols = state.symbols.first(values.size());
  const auto points = state.points.first(values.size());
  QuantizeToCodebook(state.runs.codebook(), values, state.inverses[run], symbols);
  DequantizeFromCodebook(state.runs.codebook(), symbols, 1.0F, points);
  const double coded = SumOfSquares(points);
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (coded > 0.0) {
    state.scales[run] = static_cast<float>(std::min(std::sqrt(squares / coded), kLargest));
  }
}

class LloydMax : public Quantizer, public RowQuantizer {
 public:
  explicit LloydMax(const Settings& settings)
      : options_{Options(settings, PlaneKind::kKey), Options(settings, PlaneKind::kValue)},
        raw_first_(settings.integer(kRawFirst) != 0) {}

  Status Plan(const PlaneContext& plane, DType /*dtype*/, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    symbols.tokens = plane.tokens.size() - RawFirstRow::Rows(raw_first_, plane);
    symbols.columns = heads * dim;
    symbols.alphabet = Of(plane).levels;
    return {};
  }

  [[nodiscard]] ScaleSource scale_source(PlaneKind /*kind*/) const override {
    return ScaleSource::kFrame;
  }
  [[nodiscard]] const RowQuantizer* rows() const override { return this; }

  PlaneState* Begin(const PlaneContext& plane, PlaneShape shape) const override {
    LloydMaxState* state = NewState(plane, shape);
    state->scales = plane.arena->Take<float>(state->count);
    state->inverses = plane.arena->Take<float>(state->count);
    state->symbols = plane.arena->Take<std::uint8_t>(shape.dim);
    state->points = plane.arena->Take<float>(shape.dim);
    return state;
  }

  void Observe(PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows) const override {
    auto& state = *static_cast<LloydMaxState*>(opaque);
    state.raw.Keep(first_row, rows);
    std::size_t row = 0;
    const std::span<const float> values = state.raw.Others(first_row, rows, row);
    state.runs.ForEach(row, values.size(), [&](std::size_t at, std::size_t count, std::size_t run) {
      ObserveVector(state, values.subspan(at, count), run);
    });
  }

  Status Finish(PlaneState* opaque, ByteWriter& side) const override {
    const auto& state = *static_cast<LloydMaxState*>(opaque);
    state.raw.Write(side);
    if (!state.scales.empty()) WriteRawFloats(DType::kFloat16, state.scales, side);
    return {};
  }

  void QuantizeRows(const PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows,
                    std::span<std::uint8_t> symbols) const override {
    const auto& state = *static_cast<const LloydMaxState*>(opaque);
    std::size_t row = 0;
    const std::span<const float> values = state.raw.Others(first_row, rows, row);
    state.runs.Quantize(row, values, state.inverses, symbols);
  }

  Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                 const SymbolPlane& /*symbols*/, ByteReader& side) const override {
    LloydMaxState* state = NewState(plane, shape);
    KVSERVE_TRY(state->raw.Read(side));
    if (state->count == 0) return state;
    if (side.remaining() / sizeof(std::uint16_t) < state->count) {
      return MakeError(ErrorCode::kCorruptData, std::to_string(state->count) +
                                                    " scales do not fit in " +
                                                    std::to_string(side.remaining()) + " bytes");
    }
    state->scales = plane.arena->Take<float>(state->count);
    KVSERVE_TRY(ReadRawFloats(side, state->scales));
    const bool usable = std::all_of(state->scales.begin(), state->scales.end(), [](float scale) {
      return std::isfinite(scale) && !std::signbit(scale);
    });
    if (!usable) {
      return MakeError(ErrorCode::kCorruptData, "a vector's scale is not a finite positive number");
    }
    return state;
  }

  void DequantizeRows(const PlaneState* opaque, std::uint32_t first_row,
                      std::span<const std::uint8_t> symbols, RealPlane rows) const override {
    const auto& state = *static_cast<const LloydMaxState*>(opaque);
    state.raw.Restore(first_row, rows);
    std::size_t row = 0;
    const std::span<float> values = state.raw.Others(first_row, rows, row);
    state.runs.Dequantize(row, symbols, state.scales, values);
  }

 private:
  [[nodiscard]] const Options& Of(const PlaneContext& plane) const {
    return options_[static_cast<std::size_t>(plane.kind)];
  }

  [[nodiscard]] LloydMaxState* NewState(const PlaneContext& plane, PlaneShape shape) const {
    return plane.arena->New<LloydMaxState>(Of(plane), RawFirstRow(raw_first_, plane, shape), shape);
  }

  std::array<Options, 2> options_;  // [kind]
  bool raw_first_;
};

}  // namespace

const StageEntry& LloydmaxStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_quantizer = [](const Settings& settings) -> Result<std::unique_ptr<Quantizer>> {
        return std::make_unique<LloydMax>(settings);
      }};
  return entry;
}

}  // namespace kvserve
