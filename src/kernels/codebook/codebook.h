// Scalar quantization to the nearest point of a short codebook, whatever its points: the symbol of
// x is the number of middles between neighbouring points that lie below x * inverse (a tie goes to
// the lower symbol), in float32, each operation rounded once; bit-identical everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvserve {

inline constexpr std::size_t kMostCodebookPoints = 16;

// At most kMostCodebookPoints points, ascending. `middles` lie between them. Both outlive it.
struct Codebook {
  std::span<const float> points;
  std::span<const float> middles;  // [points - 1]
};

// Values are finite, and so is the inverse of their scale. `symbols` is [value].
void QuantizeToCodebook(const Codebook& codebook, std::span<const float> values, float inverse,
                        std::span<std::uint8_t> symbols);
// Oracle.
void QuantizeToCodebookRef(const Codebook& codebook, std::span<const float> values, float inverse,
                           std::span<std::uint8_t> symbols);

// value = point * scale, clamped to the largest finite magnitude; never -0. Symbols are below the
// number of points.
void DequantizeFromCodebook(const Codebook& codebook, std::span<const std::uint8_t> symbols,
                            float scale, std::span<float> values);

// In double, in four interleaved parts: the same on every machine.
[[nodiscard]] double SumOfSquares(std::span<const float> values);

}  // namespace kvserve
