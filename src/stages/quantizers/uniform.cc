// Uniform quantization: min-max, symmetric or fixed grids; K per channel over the frame's tokens or
// blocks of them, V per token, or groups along the head dimension, or one grid for the plane. The
// request's first token is kept apart in 16 bits: attention sinks make it about 10^4 times as
// sensitive as others, and its outliers would widen every channel's range.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/try.h"
#include "kernels/quantize/uniform_plane.h"
#include "pipeline/raw_first_row.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kLevels = 1;  // and 2 for V, as below
constexpr std::uint8_t kAxis = 3;
constexpr std::uint8_t kGroup = 5;
constexpr std::uint8_t kRawFirst = 7;  // not per plane
constexpr std::uint8_t kRange = 8;
constexpr std::uint8_t kStep = 10;
constexpr std::uint8_t kDeadZone = 12;
constexpr std::uint8_t kReconstruct = 14;
constexpr std::uint8_t kGroupTokens = 16;
constexpr std::uint8_t kGrids = 18;  // not per plane

constexpr std::string_view kAxes[] = {"channel", "token", "group", "tensor"};
constexpr std::string_view kRanges[] = {"minmax", "symmetric", "fixed"};
constexpr std::uint32_t kSymmetricRange = 1;
constexpr std::uint32_t kFixedRange = 2;
constexpr std::string_view kReconstructions[] = {"midpoint", "mean"};
constexpr std::string_view kGridForms[] = {"short", "float16"};

constexpr std::uint8_t kVersion = 3;
constexpr std::uint8_t kFirstVersionWithTensor = 2;

constexpr ParameterInfo kParameters[] = {
    {.id = kLevels,
     .name = "levels",
     .type = ParameterType::kInteger,
     .low = 2,
     .high = 256,
     .default_k = 16,
     .default_v = 8,
     .per_plane = true,
     .help = "number of quantization levels"},
    {.id = kAxis,
     .name = "axis",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 3,
     .default_k = 0,
     .default_v = 1,
     .per_plane = true,
     .help = "what shares a range: a channel over the tokens, a token, a group of channels, or all",
     .choices = kAxes},
    {.id = kGroup,
     .name = "group",
     .type = ParameterType::kInteger,
     .low = 8,
     .high = 1024,
     .default_k = 64,
     .default_v = 64,
     .per_plane = true,
     .unit = "values",
     .help = "group size along the head dimension (axis=group); the last group may be shorter"},
    RawFirstParameter(kRawFirst),
    {.id = kRange,
     .name = "range",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 2,
     .per_plane = true,
     .help = "grid over the values' range, symmetric about 0, or with a given step (range=fixed)",
     .choices = kRanges,
     .since = 2},
    {.id = kStep,
     .name = "step",
     .type = ParameterType::kReal,
     .low = 1e-6,
     .high = 1e6,
     .default_k = 1,
     .default_v = 1,
     .per_plane = true,
     .help = "distance of neighbouring levels (range=fixed)",
     .since = 2},
    {.id = kDeadZone,
     .name = "dead_zone",
     .type = ParameterType::kReal,
     .low = 0,
     .high = 1,
     .per_plane = true,
     .unit = "steps",
     .help = "how much wider the bin of the level 0 is",
     .since = 2},
    {.id = kReconstruct,
     .name = "reconstruct",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .per_plane = true,
     .help = "decode to the middle of a bin or to the mean of the values in it",
     .choices = kReconstructions,
     .since = 2},
    {.id = kGroupTokens,
     .name = "group_tokens",
     .type = ParameterType::kInteger,
     .low = 0,
     .high = 65536,
     .per_plane = true,
     .unit = "tokens",
     .help = "tokens that share a channel's range (axis=channel); 0: all of the frame",
     .since = 3},
    {.id = kGrids,
     .name = "grids",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .help = "how zero and step of a range are kept: rounded to one or two bytes, or as float16",
     .choices = kGridForms,
     .since = 3},
};

constexpr StageInfo kInfo = {
    .id = 0x0302,
    .name = "uniform",
    .version = kVersion,
    .kind = StageKind::kQuantizer,
    .parameters = kParameters,
    .summary = "uniform quantization per channel, token, group or tensor",
    .oldest_version = 1,
};

UniformOptions OptionsFor(const Settings& settings, PlaneKind kind) {
  UniformOptions options;
  options.levels = settings.integer(kLevels, kind);
  options.axis = static_cast<RangeAxis>(settings.integer(kAxis, kind));
  options.group = settings.integer(kGroup, kind);
  options.fixed = settings.integer(kRange, kind) == kFixedRange;
  options.step = static_cast<float>(settings.value(kStep, kind));
  options.dead_zone = static_cast<float>(settings.value(kDeadZone, kind));
  options.means = settings.integer(kReconstruct, kind) != 0;
  options.block = settings.integer(kGroupTokens, kind);
  options.half = settings.integer(kGrids) != 0;
  if (settings.integer(kRange, kind) == kSymmetricRange) {
    options.form = GridForm::kSymmetric;
  } else if (options.dead_zone > 0.0F) {
    options.form = GridForm::kSpanZero;
  }
  return options;
}

// The rows that have symbols are those of `plane`; before them there may be a raw one.
struct UniformState : PlaneState {
  UniformState(const UniformOptions& options, const RawFirstRow& first, PlaneShape shape,
               Arena& arena)
      : raw(first), plane(options, shape.tokens - raw.rows(), shape.heads, shape.dim, arena) {}

  RawFirstRow raw;
  UniformPlane plane;
};

class Uniform : public Quantizer, public RowQuantizer {
 public:
  explicit Uniform(const Settings& settings)
      : options_{OptionsFor(settings, PlaneKind::kKey), OptionsFor(settings, PlaneKind::kValue)},
        raw_first_(settings.integer(kRawFirst) != 0) {}

  Status Plan(const PlaneContext& plane, DType /*dtype*/, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    symbols.tokens = plane.tokens.size() - RawFirstRow::Rows(raw_first_, plane);
    symbols.columns = heads * dim;
    symbols.alphabet = Of(plane).levels;
    return {};
  }

  [[nodiscard]] ScaleSource scale_source(PlaneKind kind) const override {
    const bool fixed = options_[kind == PlaneKind::kValue ? 1 : 0].fixed;
    return fixed ? ScaleSource::kProfile : ScaleSource::kFrame;
  }
  [[nodiscard]] const RowQuantizer* rows() const override { return this; }

  PlaneState* Begin(const PlaneContext& plane, PlaneShape shape) const override {
    UniformState* state = NewState(plane, shape);
    state->plane.BeginEncoding();
    return state;
  }

  void Observe(PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows) const override {
    auto& state = *static_cast<UniformState*>(opaque);
    state.raw.Keep(first_row, rows);
    std::size_t row = 0;
    const std::span<const float> values = state.raw.Others(first_row, rows, row);
    state.plane.Observe(row, values);
  }

  Status Finish(PlaneState* opaque, ByteWriter& side) const override {
    auto& state = *static_cast<UniformState*>(opaque);
    state.raw.Write(side);
    state.plane.Finish(side);
    return {};
  }

  void QuantizeRows(const PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows,
                    std::span<std::uint8_t> symbols) const override {
    const auto& state = *static_cast<const UniformState*>(opaque);
    std::size_t row = 0;
    const std::span<const float> values = state.raw.Others(first_row, rows, row);
    state.plane.Quantize(row, values, symbols);
  }

  Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                 const SymbolPlane& /*symbols*/, ByteReader& side) const override {
    UniformState* state = NewState(plane, shape);
    KVSERVE_TRY(state->raw.Read(side));
    KVSERVE_TRY(state->plane.Open(side));
    return state;
  }

  void DequantizeRows(const PlaneState* opaque, std::uint32_t first_row,
                      std::span<const std::uint8_t> symbols, RealPlane rows) const override {
    const auto& state = *static_cast<const UniformState*>(opaque);
    state.raw.Restore(first_row, rows);
    std::size_t row = 0;
    const std::span<float> values = state.raw.Others(first_row, rows, row);
    state.plane.Dequantize(row, symbols, values);
  }

 private:
  [[nodiscard]] const UniformOptions& Of(const PlaneContext& plane) const {
    return options_[static_cast<std::size_t>(plane.kind)];
  }

  [[nodiscard]] UniformState* NewState(const PlaneContext& plane, PlaneShape shape) const {
    return plane.arena->New<UniformState>(Of(plane), RawFirstRow(raw_first_, plane, shape), shape,
                                          *plane.arena);
  }

  std::array<UniformOptions, 2> options_;  // [kind]
  bool raw_first_;
};

Status CheckSettings(const Settings& settings) {
  for (const PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
    const UniformOptions options = OptionsFor(settings, kind);
    if (settings.version() < kFirstVersionWithTensor && options.axis == RangeAxis::kTensor) {
      return MakeError(ErrorCode::kInvalidArgument, "version 1 has no axis=tensor");
    }
    if (options.dead_zone > 0.0F && options.half && options.form == GridForm::kSpanZero &&
        !options.fixed) {
      return MakeError(
          ErrorCode::kInvalidArgument,
          "dead_zone with grids=float16 needs range=symmetric, which has a level at 0");
    }
    const bool any_zero = !options.fixed && options.form != GridForm::kSymmetric;
    if (options.dead_zone > 0.0F && !any_zero && options.levels % 2 == 0) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "dead_zone with range=symmetric or fixed needs a level at 0, that is an odd "
                       "number of levels, not " +
                           std::to_string(options.levels));
    }
  }
  return {};
}

}  // namespace

const StageEntry& UniformStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_quantizer = [](const Settings& settings) -> Result<std::unique_ptr<Quantizer>> {
        KVSERVE_TRY(CheckSettings(settings));
        return std::make_unique<Uniform>(settings);
      }};
  return entry;
}

}  // namespace kvserve
