// How the grid of a range of values is chosen and written: the encoder quantizes with the very grid
// that the decoder reads. Typically one or two bytes per range; docs/FORMAT_STAGES.md has the
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_io.h"
#include "kernels/minmax/minmax.h"
#include "kvserve/error.h"

namespace kvserve {

// Symbol q stands for zero + q * step; step 0: a single point.
struct Grid {
  float zero = 0.0F;
  float step = 0.0F;
  [[nodiscard]] float inverse() const { return step > 0.0F ? 1.0F / step : 0.0F; }
};

// kSpan: the points span the range, to the nearest half step. kSpanZero: to the nearest whole step,
// so that 0 is a point of every short grid whose range holds it; the bytes are those of kSpan.
// kSymmetric: zero is -(levels - 1) / 2 steps, so that 0 is a point if levels is odd, and the
// middle between two points if it is even.
enum class GridForm : std::uint8_t { kSpan, kSpanZero, kSymmetric };

// Magnitudes that grids may span: values up to 2^112, steps from 2^-120. Planes outside are scaled
// by a power of two first.
inline constexpr float kLargestGridValue = 0x1p112F;

// Where half of `levels` steps of a symmetric grid lie.
[[nodiscard]] inline float SymmetricZero(std::uint32_t levels, float step) {
  return 0.0F - static_cast<float>(levels - 1) * (0.5F * step);
}

// Grids of `levels` (2..256) points for the ranges of one plane. Steps are 1 + i/16 times a power
// of two, rounded up, so that |x - zero - q step| <= step / 2 for every x of the range, and at most
// 17/16 of the exact (high - low) / (levels - 1) (or 2^-120), where a symmetric range reaches from
// -max(|low|, |high|) to that; a range of equal values is exact unless symmetric.
class GridCode {
 public:
  GridCode(std::uint32_t levels, std::int16_t base, GridForm form = GridForm::kSpan)
      : levels_(levels), base_(base), form_(form) {}
  // Base that gives the widest range a short code; low and high are [range].
  [[nodiscard]] static GridCode For(std::uint32_t levels, GridForm form, std::span<const float> low,
                                    std::span<const float> high);

  // Writes the code of a range with low <= high, both within kLargestGridValue, to kMaxBytes of
  // room; `bytes` becomes its length.
  Grid Write(const MinMax& range, std::byte* out, std::size_t& bytes) const;
  // kCorruptData for truncated bytes or a grid that is not finite.
  [[nodiscard]] Result<Grid> Read(ByteReader& in) const;

  // Reads the codes of all ranges; zero and step are [range]. Errors as Read.
  [[nodiscard]] Status ReadAll(ByteReader& in, std::span<float> zero, std::span<float> step) const;

  [[nodiscard]] std::int16_t base() const { return base_; }
  // Of one code; most have no more.
  [[nodiscard]] std::size_t min_bytes() const { return form_ == GridForm::kSymmetric ? 1 : 2; }
  static constexpr std::size_t kMaxBytes = 9;

 private:
  [[nodiscard]] double ExactStep(const MinMax& range) const;
  void ReadShortest(std::span<const std::byte> codes, std::span<float> zero,
                    std::span<float> step) const;
  [[nodiscard]] Result<Grid> ReadLong(std::uint8_t code, ByteReader& in) const;

  std::uint32_t levels_;
  std::int16_t base_;  // exponent of the smallest step that has a short code
  GridForm form_;
};

}  // namespace kvserve
