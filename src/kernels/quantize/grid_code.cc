#include "kernels/quantize/grid_code.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kConstant = 0;  // f32 value; symmetric grids: 0 without it
constexpr std::uint8_t kExplicit = 1;  // f32 zero (symmetric grids: without it), f32 step
constexpr std::uint8_t kFirstShort = 2;
constexpr int kShortCodes = 254;
constexpr int kFractions = 16;              // steps per octave
constexpr int kOctavesBelow = 14;           // of the widest range, within short codes
constexpr double kLargestOffset = 32768.0;  // half steps; keeps zero exact and x - zero precise
constexpr double kSmallestStep = 0x1p-120;
constexpr int kFastExponent = 100;  // magnitudes of exponents whose arithmetic is exact in float
constexpr int kShortOctaves = 16;   // short codes reach over fewer

// A step (1 + fraction / 16) * 2^exponent; its position is 16 * exponent + fraction.
struct ShortStep {
  int position = 0;
  double value = 0.0;
};

// The next one at or above a normal number: the bits of a double below the exponent and four bits
// of mantissa are carried up.
ShortStep RoundUp(double step) {
  constexpr std::uint64_t kUnit = std::uint64_t{1} << 48;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(step) + (kUnit - 1);
  return {static_cast<int>(bits >> 48) - 1023 * kFractions,
          std::bit_cast<double>(bits & ~(kUnit - 1))};
}

// To nearest even. Magnitudes from 2^52 on, which are out of range for any use here, are near
// enough.
double NearestInteger(double value) {
  constexpr double kMagic = 0x1.8p52;
  return (value + kMagic) - kMagic;
}

std::uint32_t ZigZag(std::int32_t value) {
  return value < 0 ? 2 * static_cast<std::uint32_t>(-(value + 1)) + 1
                   : 2 * static_cast<std::uint32_t>(value);
}

// Half steps, as ZigZag writes them.
Result<double> ReadOffset(ByteReader& in) {
  KVSERVE_ASSIGN(const std::uint64_t zigzag, in.GetVarint());
  const std::uint64_t magnitude = zigzag / 2 + (zigzag & 1);  // + 1 might wrap to 0
  const auto half_steps = static_cast<double>(magnitude);
  if (half_steps > kLargestOffset) {
    return MakeError(ErrorCode::kCorruptData, "a grid's offset is out of range");
  }
  return (zigzag & 1) != 0 ? -half_steps : half_steps;
}

std::byte* Put(std::byte* out, float value) {
  std::memcpy(out, &value, sizeof(value));
  return out + sizeof(value);
}

Grid WriteExplicit(const MinMax& range, double exact, GridForm form, std::uint32_t levels,
                   std::byte* out, std::size_t& bytes) {
  auto step = static_cast<float>(exact);
  if (step < exact) step = std::nextafter(step, kLargestGridValue);
  std::byte* at = out;
  *at++ = std::byte{kExplicit};
  float zero = range.low + 0.0F;
  if (form == GridForm::kSymmetric) {
    zero = SymmetricZero(levels, step);
  } else {
    at = Put(at, zero);
  }
  bytes = static_cast<std::size_t>(Put(at, step) - out);
  return {zero, step};
}

// Whether all codes are short, and offsets take one byte each.
bool AllShortest(std::span<const std::byte> codes, std::size_t bytes_per_code) {
  std::uint32_t others = 0;
  for (std::size_t i = 0; i < codes.size(); i += bytes_per_code) {
    others |= static_cast<std::uint8_t>(codes[i]) < kFirstShort ? 1U : 0U;
    if (bytes_per_code > 1) others |= static_cast<std::uint8_t>(codes[i + 1]) >> 7;
  }
  return others == 0;
}

}  // namespace

double GridCode::ExactStep(const MinMax& range) const {
  double width = static_cast<double>(range.high) - static_cast<double>(range.low);
  if (form_ == GridForm::kSymmetric) {
    width = 2.0 * std::max(std::fabs(static_cast<double>(range.low)),
                           std::fabs(static_cast<double>(range.high)));
  }
  return std::max(width / (levels_ - 1), kSmallestStep);
}

GridCode GridCode::For(std::uint32_t levels, GridForm form, std::span<const float> low,
                       std::span<const float> high) {
  MinMax widest;
  double width = 0.0;
  for (std::size_t i = 0; i < low.size(); ++i) {
    double of_range = static_cast<double>(high[i]) - static_cast<double>(low[i]);
    if (form == GridForm::kSymmetric) {
      of_range = static_cast<double>(std::max(std::fabs(low[i]), std::fabs(high[i])));
    }
    if (of_range > width) {
      width = of_range;
      widest = {low[i], high[i]};
    }
  }
  GridCode code(levels, 0, form);
  if (width > 0.0) {
    const int exponent = RoundUp(code.ExactStep(widest)).position >> 4;
    code.base_ = static_cast<std::int16_t>(exponent - kOctavesBelow);
  }
  return code;
}

Grid GridCode::Write(const MinMax& range, std::byte* out, std::size_t& bytes) const {
  const bool symmetric = form_ == GridForm::kSymmetric;
  if (range.low == range.high && (!symmetric || range.low == 0.0F)) {
    const float value = range.low + 0.0F;  // -0 and 0 compare equal; keep one form
    out[0] = std::byte{kConstant};
    bytes = 1;
    if (!symmetric) bytes += static_cast<std::size_t>(Put(out + 1, value) - (out + 1));
    return {value, 0.0F};
  }
  const double exact = ExactStep(range);
  const ShortStep step = RoundUp(exact);
  const int code = step.position - base_ * kFractions;
  if (code < 0 || code >= kShortCodes) {
    return WriteExplicit(range, exact, form_, levels_, out, bytes);
  }
  out[0] = static_cast<std::byte>(code + kFirstShort);
  bytes = 1;
  const auto short_step = static_cast<float>(step.value);
  if (symmetric) return {SymmetricZero(levels_, short_step), short_step};
  // Centres the points on the range.
  const double middle = static_cast<double>(range.low) + static_cast<double>(range.high);
  double offset = middle / step.value - (levels_ - 1);
  offset =
      form_ == GridForm::kSpanZero ? 2.0 * NearestInteger(0.5 * offset) : NearestInteger(offset);
  if (!(std::fabs(offset) <= kLargestOffset)) {
    return WriteExplicit(range, exact, form_, levels_, out, bytes);
  }
  std::uint32_t zigzag = ZigZag(static_cast<std::int32_t>(offset));
  for (; zigzag >= 0x80; zigzag >>= 7) out[bytes++] = static_cast<std::byte>(zigzag | 0x80U);
  out[bytes++] = static_cast<std::byte>(zigzag);
  return {static_cast<float>(offset * (0.5 * step.value)) + 0.0F, short_step};
}

Result<Grid> GridCode::Read(ByteReader& in) const {
  KVSERVE_ASSIGN(const auto code, in.Get<std::uint8_t>());
  const int position = code - kFirstShort;
  const int exponent = base_ + position / kFractions;
  if (position < 0 || exponent < -kFastExponent || exponent > kFastExponent) {
    return ReadLong(code, in);
  }
  const auto bits =
      static_cast<std::uint32_t>((exponent + 127) << 23 | position % kFractions << (23 - 4));
  const auto step = std::bit_cast<float>(bits);
  if (form_ == GridForm::kSymmetric) return Grid{SymmetricZero(levels_, step), step};
  KVSERVE_ASSIGN(const double half_steps, ReadOffset(in));
  const auto offset = static_cast<float>(half_steps);
  return Grid{offset * (0.5F * step) + 0.0F, step};
}

Status GridCode::ReadAll(ByteReader& in, std::span<float> zero, std::span<float> step) const {
  const std::size_t shortest = zero.size() * min_bytes();
  ByteReader ahead = in;
  KVSERVE_ASSIGN(const auto codes, ahead.GetBytes(shortest));
  const bool exact = base_ >= -kFastExponent && base_ + kShortOctaves <= kFastExponent;
  if (exact && AllShortest(codes, min_bytes())) {
    ReadShortest(codes, zero, step);
    in = ahead;
    return {};
  }
  for (std::size_t i = 0; i < zero.size(); ++i) {
    KVSERVE_ASSIGN(const Grid grid, Read(in));
    zero[i] = grid.zero;
    step[i] = grid.step;
  }
  return {};
}

// Codes of min_bytes each. The position of a step counts in the bits of a float from the fourth of
// the mantissa up.
void GridCode::ReadShortest(std::span<const std::byte> codes, std::span<float> zero,
                            std::span<float> step) const {
  const auto base_bits = static_cast<std::uint32_t>(base_ + 127) << 23;
  if (form_ == GridForm::kSymmetric) {
    for (std::size_t i = 0; i < step.size(); ++i) {
      const std::uint32_t position = static_cast<std::uint32_t>(codes[i]) - kFirstShort;
      step[i] = std::bit_cast<float>(base_bits + (position << 19));
      zero[i] = SymmetricZero(levels_, step[i]);
    }
    return;
  }
  for (std::size_t i = 0; i < step.size(); ++i) {
    const std::uint32_t position = static_cast<std::uint32_t>(codes[2 * i]) - kFirstShort;
    const auto zigzag = static_cast<std::int32_t>(codes[2 * i + 1]);
    const auto offset = static_cast<float>(zigzag >> 1 ^ -(zigzag & 1));
    step[i] = std::bit_cast<float>(base_bits + (position << 19));
    zero[i] = offset * (0.5F * step[i]) + 0.0F;
  }
}

// The codes with floats, and steps whose arithmetic would leave the normal floats.
Result<Grid> GridCode::ReadLong(std::uint8_t code, ByteReader& in) const {
  const bool symmetric = form_ == GridForm::kSymmetric;
  Grid grid;
  if (code <= kExplicit) {
    if (!symmetric) {
      KVSERVE_ASSIGN(grid.zero, in.Get<float>());
    }
    if (code == kExplicit) {
      KVSERVE_ASSIGN(grid.step, in.Get<float>());
    }
  } else {
    const int position = code - kFirstShort;
    const double step = std::ldexp(1.0 + static_cast<double>(position % kFractions) / kFractions,
                                   base_ + position / kFractions);
    grid.step = static_cast<float>(step);
    if (!symmetric) {
      KVSERVE_ASSIGN(const double offset, ReadOffset(in));
      grid.zero = static_cast<float>(offset * (0.5 * step)) + 0.0F;
    }
  }
  if (symmetric && code != kConstant) grid.zero = SymmetricZero(levels_, grid.step);
  const float last = grid.zero + 255.0F * grid.step;
  if (!std::isfinite(last) || !(grid.step >= 0.0F)) {
    return MakeError(ErrorCode::kCorruptData, "a grid is not finite");
  }
  return grid;
}

}  // namespace kvserve
