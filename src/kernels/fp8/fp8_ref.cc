#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/fp8/fp8.h"

namespace kvserve {
namespace {

float Widen(const Fp8Format& format, std::uint8_t code) {
  const int magnitude = code & 0x7F;
  const bool negative = (code & 0x80) != 0;
  float value = 0.0F;
  if (format.fnuz && code == 0x80) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude > format.largest) {
    const bool infinite = format.has_infinity && magnitude == format.largest + 1;
    value =
        infinite ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else {
    const int exponent = magnitude >> format.mantissa_bits;
    const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
    const int leading = exponent == 0 ? 0 : 1 << format.mantissa_bits;
    const int scale = (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits;
    value = std::ldexp(static_cast<float>(leading + mantissa), scale);
  }
  return std::copysign(value, negative ? -1.0F : 1.0F);
}

// Rounds |value| to a multiple of the distance of its neighbours, in double, which is exact.
std::uint8_t Narrow(const Fp8Format& format, float value, bool keep_infinity, bool& saturated) {
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) {
    if (format.fnuz) return 0x80;
    return static_cast<std::uint8_t>(sign | (format.has_infinity ? 0x7E : 0x7F));
  }
  if (std::isinf(value) && keep_infinity && format.has_infinity) {
    return static_cast<std::uint8_t>(sign | (format.largest + 1));
  }
  const int smallest = 1 - format.bias;
  const int exponent = value == 0.0F ? smallest : std::isinf(value) ? 128 : std::ilogb(value);
  const int scale = std::max(exponent, smallest);
  // In units of the last place; whole octaves above the smallest normal add their codes.
  const double units =
      std::nearbyint(std::ldexp(std::fabs(double{value}), format.mantissa_bits - scale));
  const double code = units + std::ldexp(scale - smallest, format.mantissa_bits);
  saturated = !(code <= format.largest);
  const int magnitude = saturated ? format.largest : static_cast<int>(code);
  if (magnitude == 0 && format.fnuz) return 0;
  return static_cast<std::uint8_t>(sign | magnitude);
}

}  // namespace

float LargestFp8(DType dtype) {
  const Fp8Format format = Fp8FormatOf(dtype);
  return Widen(format, format.largest);
}

bool Fp8ToFloatRef(DType dtype, std::span<const std::byte> in, std::span<float> out) {
  const Fp8Format format = Fp8FormatOf(dtype);
  bool finite = true;
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = Widen(format, static_cast<std::uint8_t>(in[i]));
    finite = finite && std::isfinite(out[i]);
  }
  return finite;
}

std::size_t FloatToFp8Ref(DType dtype, std::span<const float> in, std::span<std::byte> out,
                          bool keep_infinity) {
  const Fp8Format format = Fp8FormatOf(dtype);
  std::size_t count = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    bool saturated = false;
    out[i] = static_cast<std::byte>(Narrow(format, in[i], keep_infinity, saturated));
    count += saturated ? 1 : 0;
  }
  return count;
}

}  // namespace kvserve
