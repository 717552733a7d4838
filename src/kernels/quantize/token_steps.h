// Uniform quantization with a step per token that both sides know: a token of class c has
// 2^((6 - c) / 2) times the step 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvserve {

inline constexpr std::uint32_t kStepClasses = 13;
inline constexpr std::uint8_t kUnitStepClass = 6;
inline constexpr int kLargestStepCode = 127;  // symbol = code + 127
inline constexpr std::uint32_t kStepAlphabet = 2 * kLargestStepCode + 1;

// Step of a class, and its inverse, both rounded to float32.
[[nodiscard]] float TokenStep(std::uint8_t token_class);
[[nodiscard]] float TokenGain(std::uint8_t token_class);

// code = value * gain to the nearest integer, ties to even; value = code * step, one product. A
// code beyond +-127 has the symbol of the nearest one, and its value stays as it is. `values` is
// [row, column], `classes` [row] below kStepClasses, or empty: all of class 6; rows of any other
// class get the code 0. Returns whether any code was beyond. Bit-identical on every instruction
// set.
[[nodiscard]] bool QuantizeTokenSteps(std::span<float> values, std::size_t columns,
                                      std::span<const std::uint8_t> classes, std::uint8_t* symbols);

// Of symbols that are below kStepAlphabet.
void DequantizeTokenSteps(std::span<const std::uint8_t> symbols, std::size_t columns,
                          std::span<const std::uint8_t> classes, float* values);

// Oracles.
[[nodiscard]] bool QuantizeTokenStepsRef(std::span<float> values, std::size_t columns,
                                         std::span<const std::uint8_t> classes,
                                         std::uint8_t* symbols);
void DequantizeTokenStepsRef(std::span<const std::uint8_t> symbols, std::size_t columns,
                             std::span<const std::uint8_t> classes, float* values);

}  // namespace kvserve
