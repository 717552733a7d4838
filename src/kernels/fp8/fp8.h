// The four 8-bit float types and float32. They differ in bias and in what their last codes mean:
// E4M3FN has no infinity and two NaN (0x7F, 0xFF), E5M2 is as IEEE 754, and the FNUZ forms have one
// zero, no infinity and one NaN, 0x80. So 0x40 is 2 in E4M3FN and E5M2 and 1 in the FNUZ forms.
// Source: OCP 8-bit Floating Point Specification 1.0; for FNUZ, Noune et al., "8-bit Numerical
// Formats for Deep Neural Networks", 2022.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvserve/geometry.h"

namespace kvserve {

// Values are (mantissa bits below the leading one) as IEEE 754 has them, but for the codes above
// `largest`.
struct Fp8Format {
  int mantissa_bits = 0;
  int bias = 0;
  std::uint8_t largest = 0;  // code of the largest finite value; its sign bit is clear
  bool fnuz = false;
  bool has_infinity = false;  // the code after `largest`
};

[[nodiscard]] constexpr bool IsFp8(DType dtype) {
  return dtype >= DType::kFloat8E4M3FN && dtype <= DType::kFloat8E5M2FNUZ;
}

// Of a type with IsFp8.
[[nodiscard]] constexpr Fp8Format Fp8FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FNUZ: return {3, 8, 0x7F, true, false};
    case DType::kFloat8E5M2: return {2, 15, 0x7B, false, true};
    case DType::kFloat8E5M2FNUZ: return {2, 16, 0x7F, true, false};
    default: return {3, 7, 0x7E, false, false};  // E4M3FN
  }
}

// Largest finite value: 448, 240 (E4M3FNUZ) or 57344.
[[nodiscard]] float LargestFp8(DType dtype);

// Widens exactly; NaN becomes a quiet NaN. `out` has in.size() values. Returns whether all are
// finite. Bit-identical on every instruction set.
bool Fp8ToFloat(DType dtype, std::span<const std::byte> in, std::span<float> out);

// Rounds to nearest even. What rounds beyond the largest finite value becomes that value with its
// sign, and so does infinity unless the type has one and `keep_infinity`. NaN becomes NaN (0x7F,
// 0x7E in E5M2, with its sign; 0x80 in FNUZ). Returns how many values became the largest,
// infinities included. Bit-identical on every instruction set.
std::size_t FloatToFp8(DType dtype, std::span<const float> in, std::span<std::byte> out,
                       bool keep_infinity);

// Oracles.
bool Fp8ToFloatRef(DType dtype, std::span<const std::byte> in, std::span<float> out);
std::size_t FloatToFp8Ref(DType dtype, std::span<const float> in, std::span<std::byte> out,
                          bool keep_infinity);

}  // namespace kvserve
