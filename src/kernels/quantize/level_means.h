// Conditional means: where the values of a symbol lie on average within their bin, so that a
// decoder can put them there and not in the middle.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/arena.h"
#include "base/byte_io.h"
#include "kvserve/error.h"

namespace kvserve {

// Gathers positions of values, in steps from the point of their symbol, and codes one mean per
// symbol in 1/256 of a step. The bytes are in docs/FORMAT_STAGES.md, "Means".
class LevelMeans {
 public:
  explicit LevelMeans(std::uint32_t levels) : levels_(levels) {}

  void Add(std::uint8_t symbol, float offset) {
    counts_[symbol] += 1.0;
    sums_[symbol] += static_cast<double>(offset);
    squares_ += static_cast<double>(offset) * static_cast<double>(offset);
  }

  // Writes the means if they are worth their bytes for a plane of `values` values, of which those
  // added are a sample, and otherwise that there are none.
  void Write(std::size_t values, ByteWriter& out) const;

  // Points of 256 symbols for Grids::points, in the arena; empty when there are no means.
  [[nodiscard]] static Result<std::span<const float>> Read(std::uint32_t levels, Arena& arena,
                                                           ByteReader& in);

 private:
  std::uint32_t levels_;
  std::array<double, 256> counts_{};
  std::array<double, 256> sums_{};
  double squares_ = 0.0;
};

}  // namespace kvserve
