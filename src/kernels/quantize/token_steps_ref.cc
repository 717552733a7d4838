#include <algorithm>
#include <cmath>

#include "kernels/quantize/token_steps.h"

namespace kvserve {
namespace {

// 2^(halves / 2)
float HalfPower(int halves) {
  const int whole = (halves - (halves & 1)) / 2;
  return std::ldexp((halves & 1) != 0 ? 0x1.6a09e6p+0F : 1.0F, whole);
}

std::uint8_t ClassOf(std::span<const std::uint8_t> classes, std::size_t row) {
  return classes.empty() ? kUnitStepClass : classes[row];
}

}  // namespace

float TokenStep(std::uint8_t token_class) {
  return HalfPower(kUnitStepClass - int{token_class});
}

float TokenGain(std::uint8_t token_class) {
  return HalfPower(int{token_class} - kUnitStepClass);
}

bool QuantizeTokenStepsRef(std::span<float> values, std::size_t columns,
                           std::span<const std::uint8_t> classes, std::uint8_t* symbols) {
  constexpr float kBeyond = kLargestStepCode + 1;
  bool beyond = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint8_t token_class = ClassOf(classes, i / columns);
    int code = 0;
    float step = 0.0F;
    if (token_class < kStepClasses) {
      step = TokenStep(token_class);
      float scaled = values[i] * TokenGain(token_class);
      scaled = scaled < kBeyond ? scaled : kBeyond;
      scaled = scaled > -kBeyond ? scaled : -kBeyond;
      code = static_cast<int>(std::nearbyint(scaled));
    }
    const int inside = std::clamp(code, -kLargestStepCode, kLargestStepCode);
    if (code == inside) values[i] = static_cast<float>(code) * step;
    beyond = beyond || code != inside;
    symbols[i] = static_cast<std::uint8_t>(inside + kLargestStepCode);
  }
  return beyond;
}

void DequantizeTokenStepsRef(std::span<const std::uint8_t> symbols, std::size_t columns,
                             std::span<const std::uint8_t> classes, float* values) {
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const std::uint8_t token_class = ClassOf(classes, i / columns);
    const float step = token_class < kStepClasses ? TokenStep(token_class) : 0.0F;
    values[i] = static_cast<float>(int{symbols[i]} - kLargestStepCode) * step;
  }
}

}  // namespace kvserve
