// Rows of a plane [token, head, dim] in runs of consecutive channels of a head, each with a scale
// of its own, quantized to one codebook.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/codebook/codebook.h"
#include "kernels/minmax/minmax.h"

namespace kvserve {

class ScaledRuns {
 public:
  ScaledRuns() = default;
  // Runs of `group` channels, the last one of a head shorter.
  ScaledRuns(const Codebook& codebook, std::size_t group, std::size_t heads, std::size_t dim)
      : codebook_(codebook), runs_{dim, std::min(group, dim)}, heads_(heads) {}

  [[nodiscard]] std::size_t per_row() const { return heads_ * runs_.per_segment(); }

  // visit(first value, values, run of the plane) for some rows.
  template <typename Visit>
  void ForEach(std::size_t first_row, std::size_t values, const Visit& visit) const {
    std::size_t run = first_row * per_row();
    for (std::size_t segment = 0; segment < values; segment += runs_.segment) {
      for (std::size_t at = 0; at < runs_.segment; at += runs_.group, ++run) {
        visit(segment + at, std::min(runs_.group, runs_.segment - at), run);
      }
    }
  }

  // `inverses` and `scales` are [run] of the plane.
  void Quantize(std::size_t first_row, std::span<const float> values,
                std::span<const float> inverses, std::span<std::uint8_t> symbols) const {
    ForEach(first_row, values.size(), [&](std::size_t at, std::size_t count, std::size_t run) {
      QuantizeToCodebook(codebook_, values.subspan(at, count), inverses[run],
                         symbols.subspan(at, count));
    });
  }
  void Dequantize(std::size_t first_row, std::span<const std::uint8_t> symbols,
                  std::span<const float> scales, std::span<float> values) const {
    ForEach(first_row, values.size(), [&](std::size_t at, std::size_t count, std::size_t run) {
      DequantizeFromCodebook(codebook_, symbols.subspan(at, count), scales[run],
                             values.subspan(at, count));
    });
  }

  [[nodiscard]] const Codebook& codebook() const { return codebook_; }

 private:
  Codebook codebook_;
  Runs runs_{1, 1};
  std::size_t heads_ = 0;
};

}  // namespace kvserve
