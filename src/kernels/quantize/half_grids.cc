#include "kernels/quantize/half_grids.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "base/try.h"

namespace kvserve {
namespace {

// Largest magnitudes end up in [2^13, 2^14), so that steps of two levels are below 65504 too.
constexpr int kExponent = 13;

}  // namespace

std::int8_t HalfGridShift(float largest) {
  if (largest == 0.0F || (largest >= 0x1p-10F && largest < 0x1p14F)) return 0;
  const int shift = kExponent - std::ilogb(largest);
  return static_cast<std::int8_t>(std::min<int>(shift, kLargestHalfGridShift));
}

void WriteHalfGrids(std::uint32_t levels, GridForm form, std::span<const float> low,
                    std::span<const float> high, std::span<float> zero, std::span<float> step,
                    ByteWriter& out) {
  const auto intervals = static_cast<float>(levels - 1);
  const bool symmetric = form == GridForm::kSymmetric;
  for (std::size_t i = 0; i < low.size(); ++i) {
    const float width =
        symmetric ? 2.0F * std::max(std::fabs(low[i]), std::fabs(high[i])) : high[i] - low[i];
    const std::uint16_t step_bits = FloatToFloat16(width / intervals);
    step[i] = Float16ToFloat(step_bits);
    if (symmetric) {
      zero[i] = SymmetricZero(levels, step[i]);
    } else {
      const std::uint16_t zero_bits = FloatToFloat16(low[i] + 0.0F);  // -0 becomes 0
      zero[i] = Float16ToFloat(zero_bits) + 0.0F;
      out.Put(zero_bits);
    }
    out.Put(step_bits);
  }
}

Status ReadHalfGrids(std::uint32_t levels, GridForm form, ByteReader& in, std::span<float> zero,
                     std::span<float> step) {
  const bool symmetric = form == GridForm::kSymmetric;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (!symmetric) {
      KVSERVE_ASSIGN(const auto zero_bits, in.Get<std::uint16_t>());
      zero[i] = Float16ToFloat(zero_bits) + 0.0F;
    }
    KVSERVE_ASSIGN(const auto step_bits, in.Get<std::uint16_t>());
    step[i] = Float16ToFloat(step_bits);
    if (symmetric) zero[i] = SymmetricZero(levels, step[i]);
    if (!std::isfinite(zero[i]) || !std::isfinite(step[i]) || std::signbit(step[i])) {
      return MakeError(ErrorCode::kCorruptData, "a grid is not finite or its step negative");
    }
  }
  return {};
}

}  // namespace kvserve
