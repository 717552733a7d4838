// Encoding passes twice over the rows: the first finds the ranges and keeps a sample of rows, in
// which the conditional means are counted once the grids are known; the second quantizes.
#include "kernels/quantize/uniform_plane.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/try.h"
#include "kernels/quantize/half_grids.h"
#include "kernels/quantize/level_means.h"

namespace kvserve {
namespace {

// Powers of two that bring a plane's values into the range of grids.
constexpr std::int8_t kShiftNone = 0;
constexpr std::int8_t kShiftDown = -16;
constexpr std::int8_t kShiftUp = 64;

// Means are counted in rows of about this many values, and no fewer rows than that. Against
// counting them in all rows it costs below 0.01 dB at 4 to 8 levels.
constexpr std::size_t kSampleValues = 4096;
constexpr std::size_t kSampleRows = 8;

std::int8_t ShiftFor(float largest) {
  if (largest > 0x1p100F) return kShiftDown;
  if (largest > 0.0F && largest < 0x1p-60F) return kShiftUp;
  return kShiftNone;
}

// The symbol of the value 0, if it has one.
float CentreOf(float zero, float step, float top) {
  if (step == 0.0F) return kNoCentre;
  const float centre = std::nearbyint(-zero / step);
  return centre >= 0.0F && centre <= top && zero + centre * step == 0.0F ? centre : kNoCentre;
}

}  // namespace

void Unshift(std::int8_t shift, std::span<float> values) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float factor = std::ldexp(1.0F, -shift);
  for (float& value : values) value = std::clamp(value * factor, -kLargest, kLargest);
}

UniformPlane::UniformPlane(const UniformOptions& options, std::size_t rows, std::size_t heads,
                           std::size_t dim, Arena& arena)
    : options_(options),
      arena_(arena),
      rows_(rows),
      layout_(options.fixed ? RangeAxis::kTensor : options.axis, options.group, rows, heads, dim,
              options.block) {
  grids_.top = options.levels - 1;
  grids_.reach = 0.5F * (1.0F + options.dead_zone);
}

void UniformPlane::BeginEncoding() {
  if (rows_ == 0) return;
  TakeGrids();
  const std::size_t ranges = layout_.count();
  inverse_ = arena_.Take<float>(ranges);
  if (options_.dead_zone > 0.0F) centre_ = arena_.Take<float>(ranges);
  if (!options_.fixed) {
    low_ = arena_.Take<float>(ranges);
    high_ = arena_.Take<float>(ranges);
    std::fill(low_.begin(), low_.end(), std::numeric_limits<float>::infinity());
    std::fill(high_.begin(), high_.end(), -std::numeric_limits<float>::infinity());
  }
  if (options_.means) BeginSample();
}

void UniformPlane::Observe(std::size_t first_row, std::span<const float> values) {
  if (values.empty()) return;
  if (options_.fixed) {
    FindEscapes(first_row, values);
  } else {
    layout_.Widen(first_row, values, low_, high_);
  }
  if (options_.means) KeepSample(first_row, values);
}

void UniformPlane::Finish(ByteWriter& side) {
  if (rows_ == 0) return;
  if (options_.fixed) {
    SetFixedGrid();
  } else {
    WriteGrids(side);
  }
  CompleteGrids();
  if (options_.means) WriteMeans(side);
  if (options_.fixed) found_escapes_.Write(side);
}

void UniformPlane::Quantize(std::size_t first_row, std::span<const float> values,
                            std::span<std::uint8_t> symbols) const {
  if (shift_ != kShiftNone) return QuantizeShifted(first_row, values, symbols);
  layout_.Quantize(first_row, values, grids_, symbols);
}

Status UniformPlane::Open(ByteReader& side) {
  if (rows_ == 0) return {};
  if (options_.fixed) {
    TakeGrids();
    SetFixedGrid();
  } else {
    KVSERVE_TRY(ReadGrids(side));
  }
  if (options_.means) {
    KVSERVE_ASSIGN(grids_.points, LevelMeans::Read(options_.levels, arena_, side));
  }
  if (options_.fixed) {
    KVSERVE_ASSIGN(escapes_, ReadEscapes(rows_ * layout_.columns(), arena_, side));
  }
  return {};
}

void UniformPlane::Dequantize(std::size_t first_row, std::span<const std::uint8_t> symbols,
                              std::span<float> values) const {
  layout_.Dequantize(first_row, symbols, grids_, values);
  if (shift_ != kShiftNone) Unshift(shift_, values);
  if (!escapes_.empty()) ApplyEscapes(escapes_, first_row * layout_.columns(), values);
}

void UniformPlane::BeginSample() {
  const std::size_t columns = layout_.columns();
  const std::size_t wanted = std::max(kSampleRows, (kSampleValues + columns - 1) / columns);
  sample_stride_ = std::max<std::size_t>(1, rows_ / wanted);
  sample_ = arena_.Take<float>((rows_ + sample_stride_ - 1) / sample_stride_ * columns);
}

void UniformPlane::KeepSample(std::size_t first_row, std::span<const float> values) {
  const std::size_t columns = layout_.columns();
  const std::size_t stride = sample_stride_;
  const std::size_t end = first_row + values.size() / columns;
  for (std::size_t row = (first_row + stride - 1) / stride * stride; row < end; row += stride) {
    const auto from = values.subspan((row - first_row) * columns, columns);
    std::copy(from.begin(), from.end(), &sample_[row / stride * columns]);
  }
}

// What lies more than half a step outside of the points.
void UniformPlane::FindEscapes(std::size_t first_row, std::span<const float> values) {
  const float limit = 0.5F * static_cast<float>(options_.levels) * options_.step;
  const MinMax range = MinMaxSpan(values);
  if (range.low >= -limit && range.high <= limit) return;
  const std::uint64_t first = first_row * layout_.columns();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i]) > limit) found_escapes_.Add({first + i, values[i]}, arena_);
  }
}

void UniformPlane::TakeGrids() {
  zero_ = arena_.Take<float>(layout_.count());
  step_ = arena_.Take<float>(layout_.count());
  grids_.zero = zero_;
  grids_.step = step_;
}

void UniformPlane::SetFixedGrid() {
  zero_[0] = SymmetricZero(options_.levels, options_.step);
  step_[0] = options_.step;
}

void UniformPlane::WriteGrids(ByteWriter& side) {
  float largest = 0.0F;
  for (std::size_t i = 0; i < low_.size(); ++i) {
    largest = std::max({largest, std::fabs(low_[i]), std::fabs(high_[i])});
  }
  shift_ = options_.half ? HalfGridShift(largest) : ShiftFor(largest);
  if (shift_ != kShiftNone) {
    const float factor = std::ldexp(1.0F, shift_);
    for (const auto part : {low_, high_, sample_}) {
      for (float& value : part) value *= factor;
    }
  }
  side.Put(shift_);
  if (options_.half) {
    WriteHalfGrids(options_.levels, options_.form, low_, high_, zero_, step_, side);
  } else {
    WriteGridCodes(side);
  }
}

void UniformPlane::WriteGridCodes(ByteWriter& side) {
  const GridCode code = GridCode::For(options_.levels, options_.form, low_, high_);
  side.Put(code.base());
  const auto codes = arena_.Take<std::byte>(low_.size() * GridCode::kMaxBytes);
  std::size_t used = 0;
  for (std::size_t i = 0; i < low_.size(); ++i) {
    std::size_t bytes = 0;
    const Grid grid = code.Write({low_[i], high_[i]}, &codes[used], bytes);
    zero_[i] = grid.zero;
    step_[i] = grid.step;
    used += bytes;
  }
  side.PutBytes(codes.first(used));
}

void UniformPlane::CompleteGrids() {
  const auto top = static_cast<float>(grids_.top);
  for (std::size_t i = 0; i < inverse_.size(); ++i) {
    inverse_[i] = Grid{zero_[i], step_[i]}.inverse();
  }
  for (std::size_t i = 0; i < centre_.size(); ++i) {
    centre_[i] = CentreOf(zero_[i], step_[i], top);
  }
  grids_.inverse = inverse_;
  grids_.centre = centre_;
}

void UniformPlane::WriteMeans(ByteWriter& side) const {
  const std::size_t columns = layout_.columns();
  const auto symbols = arena_.Take<std::uint8_t>(columns);
  LevelMeans means(options_.levels);
  for (std::size_t kept = 0; kept * columns < sample_.size(); ++kept) {
    const std::size_t row = kept * sample_stride_;
    const std::span<const float> values = sample_.subspan(kept * columns, columns);
    layout_.Quantize(row, values, grids_, symbols);
    layout_.ForEachValue(row, columns, [&](std::size_t i, std::size_t range) {
      const float position = (values[i] - zero_[range]) * inverse_[range];
      const float offset = position - static_cast<float>(symbols[i]);
      if (std::fabs(offset) <= grids_.reach) means.Add(symbols[i], offset);  // no escape
    });
  }
  means.Write(rows_ * columns, side);
}

Status UniformPlane::ReadGrids(ByteReader& side) {
  KVSERVE_ASSIGN(shift_, side.Get<std::int8_t>());
  const bool known = options_.half
                         ? shift_ >= kLeastHalfGridShift && shift_ <= kLargestHalfGridShift
                         : shift_ == kShiftNone || shift_ == kShiftDown || shift_ == kShiftUp;
  if (!known) return MakeError(ErrorCode::kCorruptData, "unknown shift of a plane");
  std::int16_t base = 0;
  if (!options_.half) {
    KVSERVE_ASSIGN(base, side.Get<std::int16_t>());
  }
  const GridCode code(options_.levels, base, options_.form);
  const std::size_t least = options_.half ? HalfGridBytes(options_.form) : code.min_bytes();
  const std::size_t ranges = layout_.count();
  if (side.remaining() / least < ranges) {
    return MakeError(ErrorCode::kCorruptData, std::to_string(ranges) + " ranges do not fit in " +
                                                  std::to_string(side.remaining()) + " bytes");
  }
  TakeGrids();
  return options_.half ? ReadHalfGrids(options_.levels, options_.form, side, zero_, step_)
                       : code.ReadAll(side, zero_, step_);
}

// Real caches are not shifted: one value at a time will do.
void UniformPlane::QuantizeShifted(std::size_t first_row, std::span<const float> values,
                                   std::span<std::uint8_t> symbols) const {
  const float factor = std::ldexp(1.0F, shift_);
  layout_.ForEachValue(first_row, values.size(), [&](std::size_t i, std::size_t range) {
    const float value = values[i] * factor;
    QuantizeRunsRef({&value, 1}, {1, 1}, grids_.Part(range, 1), symbols.subspan(i, 1));
  });
}

}  // namespace kvserve
