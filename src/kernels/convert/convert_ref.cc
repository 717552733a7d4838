#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "kernels/convert/convert.h"
#include "kernels/fp8/fp8.h"

namespace kvserve {
namespace {

constexpr std::uint16_t kLargestFloat16 = 0x7BFF;
constexpr std::uint16_t kLargestBFloat16 = 0x7F7F;

template <float (*Widen)(std::uint16_t)>
void WidenAll(std::span<const std::byte> in, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, in.data() + 2 * i, 2);
    out[i] = Widen(bits);
  }
}

template <std::uint16_t (*Narrow)(float)>
std::size_t NarrowAll(std::span<const float> in, std::uint16_t largest, std::span<std::byte> out) {
  std::size_t saturated = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    std::uint16_t bits = Narrow(in[i]);
    if (std::isfinite(in[i]) && (bits & 0x7FFFU) > largest) {
      bits = static_cast<std::uint16_t>((bits & 0x8000U) | largest);
      ++saturated;
    }
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return saturated;
}

}  // namespace

void ToFloatRef(DType dtype, std::span<const std::byte> in, std::span<float> out) {
  if (dtype == DType::kFloat16) WidenAll<Float16ToFloat>(in, out);
  if (dtype == DType::kBFloat16) WidenAll<BFloat16ToFloat>(in, out);
  if (IsFp8(dtype)) (void)Fp8ToFloatRef(dtype, in, out);
  if (dtype == DType::kFloat32 && !out.empty()) std::memcpy(out.data(), in.data(), out.size() * 4);
}

std::size_t FromFloatRef(DType dtype, std::span<const float> in, std::span<std::byte> out) {
  if (dtype == DType::kFloat16) return NarrowAll<FloatToFloat16>(in, kLargestFloat16, out);
  if (dtype == DType::kBFloat16) return NarrowAll<FloatToBFloat16>(in, kLargestBFloat16, out);
  if (IsFp8(dtype)) return FloatToFp8Ref(dtype, in, out, true);
  if (dtype == DType::kFloat32 && !in.empty()) std::memcpy(out.data(), in.data(), in.size() * 4);
  return 0;
}

}  // namespace kvserve
