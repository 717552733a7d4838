// Uniform quantization: min-max, symmetric or fixed grids; K per channel over the frame's tokens, V
// per token, or groups along the head dimension, or one grid for the plane. The request's first
// token is kept apart in 16 bits: attention sinks make it about 10^4 times as sensitive as others,
// and its outliers would widen every channel's range.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/try.h"
#include "kernels/convert/raw_floats.h"
#include "kernels/quantize/uniform_plane.h"
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

constexpr std::string_view kAxes[] = {"channel", "token", "group", "tensor"};
constexpr std::string_view kRanges[] = {"minmax", "symmetric", "fixed"};
constexpr std::uint32_t kSymmetricRange = 1;
constexpr std::uint32_t kFixedRange = 2;
constexpr std::string_view kReconstructions[] = {"midpoint", "mean"};

constexpr std::uint8_t kVersion = 2;

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
    {.id = kRawFirst,
     .name = "raw_first",
     .type = ParameterType::kBoolean,
     .low = 0,
     .high = 1,
     .default_k = 1,
     .help = "keep the request's first token in 16 bits (fp32 caches: 32)"},
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
  if (settings.integer(kRange, kind) == kSymmetricRange) {
    options.form = GridForm::kSymmetric;
  } else if (options.dead_zone > 0.0F) {
    options.form = GridForm::kSpanZero;
  }
  return options;
}

// The rows that have symbols are those of `plane`; before them there may be a raw one.
struct UniformState : PlaneState {
  UniformState(const UniformOptions& options, std::uint32_t raw, PlaneShape shape, Arena& arena)
      : plane(options, shape.tokens - raw, shape.heads, shape.dim, arena),
        raw_row(arena.Take<float>(raw * std::size_t{shape.columns()})) {}

  // The values of a tile that have symbols; `row` is the first of them among such rows.
  template <typename Plane>
  [[nodiscard]] auto Coded(std::uint32_t first_row, const Plane& tile, std::size_t& row) const {
    const std::uint32_t raw = raw_row.empty() ? 0 : 1;
    const std::uint32_t skipped = first_row == 0 ? raw : 0;
    row = first_row + skipped - raw;
    return tile.span().subspan(std::size_t{skipped} * tile.columns());
  }

  UniformPlane plane;
  std::span<float> raw_row;  // [column] or empty
  DType dtype = DType::kFloat16;
};

class Uniform : public Quantizer, public RowQuantizer {
 public:
  explicit Uniform(const Settings& settings)
      : options_{OptionsFor(settings, PlaneKind::kKey), OptionsFor(settings, PlaneKind::kValue)},
        raw_first_(settings.integer(kRawFirst) != 0) {}

  Status Plan(const PlaneContext& plane, DType /*dtype*/, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    symbols.tokens = plane.tokens.size() - RawRows(plane);
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
    state->dtype = plane.frame->geometry->dtype;
    state->plane.BeginEncoding();
    return state;
  }

  void Observe(PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows) const override {
    auto& state = *static_cast<UniformState*>(opaque);
    if (first_row == 0) std::copy_n(rows.data, state.raw_row.size(), state.raw_row.begin());
    std::size_t row = 0;
    const std::span<const float> values = state.Coded(first_row, rows, row);
    state.plane.Observe(row, values);
  }

  Status Finish(PlaneState* opaque, ByteWriter& side) const override {
    auto& state = *static_cast<UniformState*>(opaque);
    if (!state.raw_row.empty()) WriteRawFloats(state.dtype, state.raw_row, side);
    state.plane.Finish(side);
    return {};
  }

  void QuantizeRows(const PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows,
                    std::span<std::uint8_t> symbols) const override {
    const auto& state = *static_cast<const UniformState*>(opaque);
    std::size_t row = 0;
    const std::span<const float> values = state.Coded(first_row, rows, row);
    state.plane.Quantize(row, values, symbols);
  }

  Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                 const SymbolPlane& /*symbols*/, ByteReader& side) const override {
    UniformState* state = NewState(plane, shape);
    if (!state->raw_row.empty()) KVSERVE_TRY(ReadRawFloats(side, state->raw_row));
    KVSERVE_TRY(state->plane.Open(side));
    return state;
  }

  void DequantizeRows(const PlaneState* opaque, std::uint32_t first_row,
                      std::span<const std::uint8_t> symbols, RealPlane rows) const override {
    const auto& state = *static_cast<const UniformState*>(opaque);
    if (first_row == 0) std::copy(state.raw_row.begin(), state.raw_row.end(), rows.data);
    std::size_t row = 0;
    const std::span<float> values = state.Coded(first_row, rows, row);
    state.plane.Dequantize(row, symbols, values);
  }

 private:
  [[nodiscard]] const UniformOptions& Of(const PlaneContext& plane) const {
    return options_[static_cast<std::size_t>(plane.kind)];
  }

  [[nodiscard]] std::uint32_t RawRows(const PlaneContext& plane) const {
    return raw_first_ && plane.tokens.begin == 0 && !plane.tokens.empty() ? 1 : 0;
  }

  [[nodiscard]] UniformState* NewState(const PlaneContext& plane, PlaneShape shape) const {
    return plane.arena->New<UniformState>(Of(plane), RawRows(plane), shape, *plane.arena);
  }

  std::array<UniformOptions, 2> options_;  // [kind]
  bool raw_first_;
};

Status CheckSettings(const Settings& settings) {
  for (const PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
    const UniformOptions options = OptionsFor(settings, kind);
    if (settings.version() < kVersion && options.axis == RangeAxis::kTensor) {
      return MakeError(ErrorCode::kInvalidArgument, "version 1 has no axis=tensor");
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
