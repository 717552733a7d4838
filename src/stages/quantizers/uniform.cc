// Uniform min-max quantization: K per channel over the frame's tokens, V per token, or groups along
// the head dimension. The request's first token is kept apart in 16 bits: attention sinks make it
// about 10^4 times as sensitive as others, and its outliers would widen every channel's range.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/try.h"
#include "kernels/convert/convert.h"
#include "kernels/minmax/minmax.h"
#include "kernels/quantize/grid_code.h"
#include "kernels/quantize/quantize.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kLevels = 1;  // and 2 for V
constexpr std::uint8_t kAxis = 3;    // and 4
constexpr std::uint8_t kGroup = 5;   // and 6
constexpr std::uint8_t kRawFirst = 7;

constexpr std::string_view kAxes[] = {"channel", "token", "group"};
constexpr std::uint32_t kChannelAxis = 0;
constexpr std::uint32_t kTokenAxis = 1;

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
     .high = 2,
     .default_k = 0,
     .default_v = 1,
     .per_plane = true,
     .help = "what shares a range: a channel over the tokens, a token, or a group of channels",
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
};

constexpr StageInfo kInfo = {
    .id = 0x0302,
    .name = "uniform",
    .kind = StageKind::kQuantizer,
    .parameters = kParameters,
    .summary = "uniform min-max quantization per channel, token or group",
};

constexpr std::uint8_t kRawFloat16 = 0;
constexpr std::uint8_t kRawFloat32 = 1;

// Powers of two that bring a plane's values into the range of grids.
constexpr std::int8_t kShiftNone = 0;
constexpr std::int8_t kShiftDown = -16;
constexpr std::int8_t kShiftUp = 64;

std::int8_t ShiftFor(float largest) {
  if (largest > 0x1p100F) return kShiftDown;
  if (largest > 0.0F && largest < 0x1p-60F) return kShiftUp;
  return kShiftNone;
}

float LargestMagnitude(std::span<const float> values) {
  const MinMax range = MinMaxSpan(values);
  return std::max(std::fabs(range.low), std::fabs(range.high));
}

// How a plane divides into ranges: per channel, or runs of consecutive values.
class Division {
 public:
  Division(std::uint32_t axis, std::uint32_t group, std::size_t rows, std::size_t heads,
           std::size_t dim)
      : rows_(rows), columns_(heads * dim), by_channel_(axis == kChannelAxis) {
    segment_ = axis == kTokenAxis ? columns_ : dim;
    group_ = axis == kTokenAxis ? columns_ : std::min<std::size_t>(group, dim);
  }

  [[nodiscard]] bool by_channel() const { return by_channel_; }
  [[nodiscard]] std::size_t values() const { return rows_ * columns_; }
  [[nodiscard]] std::size_t columns() const { return columns_; }
  [[nodiscard]] std::size_t ranges() const {
    if (rows_ == 0) return 0;
    if (by_channel_) return columns_;
    return values() / segment_ * ((segment_ + group_ - 1) / group_);
  }
  // visit(range index, first value, number of values), runs only.
  template <typename Visit>
  void ForEachRun(const Visit& visit) const {
    std::size_t index = 0;
    for (std::size_t segment = 0; segment < values(); segment += segment_) {
      for (std::size_t at = 0; at < segment_; at += group_) {
        visit(index++, segment + at, std::min(group_, segment_ - at));
      }
    }
  }

 private:
  std::size_t rows_;
  std::size_t columns_;
  std::size_t segment_ = 0;  // groups do not cross multiples of it
  std::size_t group_ = 0;
  bool by_channel_;
};

std::vector<MinMax> FindRanges(const Division& division, std::span<const float> values) {
  std::vector<MinMax> ranges(division.ranges());
  if (!division.by_channel()) {
    division.ForEachRun([&](std::size_t i, std::size_t at, std::size_t count) {
      ranges[i] = MinMaxSpan(values.subspan(at, count));
    });
  } else if (!ranges.empty()) {
    std::vector<float> low(ranges.size());
    std::vector<float> high(ranges.size());
    MinMaxColumns(values, low, high);
    for (std::size_t i = 0; i < ranges.size(); ++i) ranges[i] = {low[i], high[i]};
  }
  return ranges;
}

// Grids of all ranges, as arrays so that columns can be vectors.
struct Grids {
  std::vector<float> zero, step, inverse;
  void Add(const Grid& grid) {
    zero.push_back(grid.zero);
    step.push_back(grid.step);
    inverse.push_back(grid.inverse());
  }
};

void ToSymbols(const Division& division, const Grids& grids, std::uint32_t top,
               std::span<const float> values, std::span<std::uint8_t> symbols) {
  if (division.by_channel()) {
    return QuantizeColumns(values, grids.zero, grids.inverse, top, symbols);
  }
  division.ForEachRun([&](std::size_t i, std::size_t at, std::size_t count) {
    QuantizeSpan(values.subspan(at, count), grids.zero[i], grids.inverse[i], top,
                 symbols.subspan(at, count));
  });
}

void ToValues(const Division& division, const Grids& grids, std::span<const std::uint8_t> symbols,
              std::span<float> values) {
  if (division.by_channel()) return DequantizeColumns(symbols, grids.zero, grids.step, values);
  division.ForEachRun([&](std::size_t i, std::size_t at, std::size_t count) {
    DequantizeSpan(symbols.subspan(at, count), grids.zero[i], grids.step[i],
                   values.subspan(at, count));
  });
}

void WriteRaw(DType dtype, std::span<const float> row, ByteWriter& side) {
  const float largest = LargestMagnitude(row);
  const bool fits = largest == 0.0F || (largest <= 65504.0F && largest >= 0x1p-6F);
  const bool narrow = fits && dtype != DType::kFloat32;
  side.Put(narrow ? kRawFloat16 : kRawFloat32);
  const DType stored = narrow ? DType::kFloat16 : DType::kFloat32;
  (void)FromFloat(stored, row, side.Grow(row.size() * DTypeBytes(stored)));
}

Status ReadRaw(ByteReader& side, std::span<float> row) {
  KVSERVE_ASSIGN(const auto form, side.Get<std::uint8_t>());
  if (form > kRawFloat32)
    return MakeError(ErrorCode::kCorruptData, "unknown form of the raw token");
  const DType stored = form == kRawFloat16 ? DType::kFloat16 : DType::kFloat32;
  KVSERVE_ASSIGN(const auto bytes, side.GetBytes(row.size() * DTypeBytes(stored)));
  ToFloat(stored, bytes, row);
  return {};
}

class Uniform : public Quantizer {
 public:
  explicit Uniform(const Settings& settings) : settings_(settings) {}

  Status Plan(const PlaneContext& plane, DType /*dtype*/, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    symbols.tokens = plane.tokens.size() - (HasRaw(plane) ? 1 : 0);
    symbols.columns = heads * dim;
    symbols.alphabet = settings_.integer(kLevels, plane.kind);
    return {};
  }

  Status Quantize(const PlaneContext& plane, ConstRealPlane values, SymbolPlane& symbols,
                  ByteWriter& side) const override {
    std::span<const float> rest = values.span();
    if (HasRaw(plane)) {
      WriteRaw(plane.frame->geometry->dtype, rest.first(values.columns()), side);
      rest = rest.subspan(values.columns());
    }
    if (rest.empty()) return {};
    const std::int8_t shift = ShiftFor(LargestMagnitude(rest));
    std::vector<float> scaled;
    if (shift != kShiftNone) {
      const float factor = std::ldexp(1.0F, shift);
      for (const float value : rest) scaled.push_back(value * factor);
      rest = scaled;
    }
    const Division division = Divide(plane, rest.size() / values.columns(), values);
    const std::vector<MinMax> ranges = FindRanges(division, rest);
    const GridCode code = GridCode::For(symbols.alphabet, ranges);
    side.Put(shift);
    side.Put(code.base());
    Grids grids;
    for (const auto& range : ranges) grids.Add(code.Write(range, side));
    ToSymbols(division, grids, symbols.alphabet - 1, rest, symbols.symbols);
    return {};
  }

  Status Dequantize(const PlaneContext& plane, const SymbolPlane& symbols, ByteReader& side,
                    RealPlane values) const override {
    std::span<float> rest = values.span();
    if (HasRaw(plane)) {
      KVSERVE_TRY(ReadRaw(side, rest.first(values.columns())));
      rest = rest.subspan(values.columns());
    }
    if (rest.empty()) return {};
    KVSERVE_ASSIGN(const auto shift, side.Get<std::int8_t>());
    KVSERVE_ASSIGN(const auto base, side.Get<std::int16_t>());
    if (shift != kShiftNone && shift != kShiftDown && shift != kShiftUp) {
      return MakeError(ErrorCode::kCorruptData, "unknown shift of a plane");
    }
    const Division division = Divide(plane, rest.size() / values.columns(), values);
    KVSERVE_ASSIGN(const Grids grids, ReadGrids({symbols.alphabet, base}, division.ranges(), side));
    ToValues(division, grids, symbols.symbols, rest);
    if (shift != kShiftNone) Unshift(shift, rest);
    return {};
  }

 private:
  [[nodiscard]] bool HasRaw(const PlaneContext& plane) const {
    return settings_.integer(kRawFirst) != 0 && plane.tokens.begin == 0 && !plane.tokens.empty();
  }

  template <typename Plane>
  [[nodiscard]] Division Divide(const PlaneContext& plane, std::size_t rows,
                                const Plane& values) const {
    return {settings_.integer(kAxis, plane.kind), settings_.integer(kGroup, plane.kind), rows,
            values.heads, values.dim};
  }

  static Result<Grids> ReadGrids(const GridCode& code, std::size_t ranges, ByteReader& side) {
    if (side.remaining() / GridCode::kMinBytes < ranges) {
      return MakeError(ErrorCode::kCorruptData, std::to_string(ranges) + " ranges do not fit in " +
                                                    std::to_string(side.remaining()) + " bytes");
    }
    Grids grids;
    for (std::size_t i = 0; i < ranges; ++i) {
      KVSERVE_ASSIGN(const Grid grid, code.Read(side));
      grids.Add(grid);
    }
    return grids;
  }

  // The largest floats may round up past the end of their range.
  static void Unshift(std::int8_t shift, std::span<float> values) {
    constexpr float kLargest = 0x1.fffffep127F;
    const float factor = std::ldexp(1.0F, -shift);
    for (float& value : values) value = std::clamp(value * factor, -kLargest, kLargest);
  }

  Settings settings_;
};

}  // namespace

const StageEntry& UniformStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_quantizer = [](const Settings& settings) -> Result<std::unique_ptr<Quantizer>> {
        return std::make_unique<Uniform>(settings);
      }};
  return entry;
}

}  // namespace kvserve
