#include "kernels/quantize/grid_code.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kConstant = 0;  // f32 value
constexpr std::uint8_t kExplicit = 1;  // f32 zero, f32 step
constexpr std::uint8_t kFirstShort = 2;
constexpr int kShortCodes = 254;
constexpr int kFractions = 16;              // steps per octave
constexpr int kOctavesBelow = 14;           // of the widest range, within short codes
constexpr double kLargestOffset = 32768.0;  // half steps; keeps zero exact and x - zero precise
constexpr double kSmallestStep = 0x1p-120;

// A step (1 + fraction / 16) * 2^exponent.
struct StepParts {
  int exponent = 0;
  int fraction = 0;
  [[nodiscard]] double value() const {
    return std::ldexp(1.0 + static_cast<double>(fraction) / kFractions, exponent);
  }
};

double ExactStep(const MinMax& range, std::uint32_t levels) {
  const double width = static_cast<double>(range.high) - static_cast<double>(range.low);
  return std::max(width / (levels - 1), kSmallestStep);
}

StepParts RoundUp(double step) {
  int exponent = 0;
  const double mantissa = std::frexp(step, &exponent);  // [0.5, 1)
  const int sixteenths = static_cast<int>(std::ceil(mantissa * (2 * kFractions)));
  if (sixteenths == 2 * kFractions) return {exponent, 0};
  return {exponent - 1, sixteenths - kFractions};
}

std::uint64_t ZigZag(std::int64_t value) {
  return value < 0 ? 2 * static_cast<std::uint64_t>(-(value + 1)) + 1
                   : 2 * static_cast<std::uint64_t>(value);
}

Grid WriteExplicit(const MinMax& range, double exact, ByteWriter& out) {
  auto step = static_cast<float>(exact);
  if (step < exact) step = std::nextafter(step, kLargestGridValue);
  out.Put(kExplicit);
  out.Put(range.low + 0.0F);
  out.Put(step);
  return {range.low + 0.0F, step};
}

}  // namespace

GridCode GridCode::For(std::uint32_t levels, std::span<const MinMax> ranges) {
  double widest = 0.0;
  for (const auto& range : ranges) {
    if (range.low < range.high) widest = std::max(widest, ExactStep(range, levels));
  }
  const int base = widest > 0.0 ? RoundUp(widest).exponent - kOctavesBelow : 0;
  return {levels, static_cast<std::int16_t>(base)};
}

Grid GridCode::Write(const MinMax& range, ByteWriter& out) const {
  if (range.low == range.high) {
    const float value = range.low + 0.0F;  // -0 and 0 compare equal; keep one form
    out.Put(kConstant);
    out.Put(value);
    return {value, 0.0F};
  }
  const double exact = ExactStep(range, levels_);
  const StepParts parts = RoundUp(exact);
  const double step = parts.value();
  const int code = (parts.exponent - base_) * kFractions + parts.fraction;
  // Centres the points on the range, to the nearest half step.
  const double middle = static_cast<double>(range.low) + static_cast<double>(range.high);
  const double offset = std::nearbyint(middle / step - (levels_ - 1));
  if (code < 0 || code >= kShortCodes || std::fabs(offset) > kLargestOffset) {
    return WriteExplicit(range, exact, out);
  }
  out.Put(static_cast<std::uint8_t>(code + kFirstShort));
  out.PutVarint(ZigZag(static_cast<std::int64_t>(offset)));
  return {static_cast<float>(offset * (0.5 * step)) + 0.0F, static_cast<float>(step)};
}

Result<Grid> GridCode::Read(ByteReader& in) const {
  KVSERVE_ASSIGN(const auto code, in.Get<std::uint8_t>());
  Grid grid;
  if (code == kConstant) {
    KVSERVE_ASSIGN(grid.zero, in.Get<float>());
  } else if (code == kExplicit) {
    KVSERVE_ASSIGN(grid.zero, in.Get<float>());
    KVSERVE_ASSIGN(grid.step, in.Get<float>());
  } else {
    const int position = code - kFirstShort;
    const StepParts parts{base_ + position / kFractions, position % kFractions};
    KVSERVE_ASSIGN(const auto zigzag, in.GetVarint());
    const std::uint64_t half_steps = (zigzag + 1) / 2;
    const auto magnitude = static_cast<double>(half_steps);
    if (magnitude > kLargestOffset) {
      return MakeError(ErrorCode::kCorruptData, "a grid's offset is out of range");
    }
    const double offset = (zigzag & 1) != 0 ? -magnitude : magnitude;
    grid.zero = static_cast<float>(offset * (0.5 * parts.value())) + 0.0F;
    grid.step = static_cast<float>(parts.value());
  }
  const float last = grid.zero + 255.0F * grid.step;
  if (!std::isfinite(last) || !(grid.step >= 0.0F)) {
    return MakeError(ErrorCode::kCorruptData, "a grid is not finite");
  }
  return grid;
}

}  // namespace kvserve
