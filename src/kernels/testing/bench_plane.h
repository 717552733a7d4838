// The plane that micro-benchmarks of kernels work on.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace kvserve::testing {

// One plane of a 256-token frame: 8 heads of 128.
inline constexpr std::size_t kColumns = 1024;
inline constexpr std::size_t kValues = 256 * kColumns;

inline std::vector<float> Floats() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kValues);
  for (float& value : values) value = normal(random);
  return values;
}

inline std::vector<std::uint8_t> Symbols(std::uint32_t alphabet) {
  const auto values = Floats();
  std::vector<std::uint8_t> symbols(kValues);
  for (std::size_t i = 0; i < kValues; ++i) {
    const float level = std::round((values[i] / 7.6F + 0.5F) * static_cast<float>(alphabet - 1));
    symbols[i] = static_cast<std::uint8_t>(std::clamp(level, 0.0F, alphabet - 1.0F));
  }
  return symbols;
}

inline void SetBytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

}  // namespace kvserve::testing
