// One plane quantized with classes of tokens and heads: the ranges are those of uniform
// quantization over all tokens that are kept, and every class puts a grid of its own number of
// levels over them. docs/FORMAT_STAGES.md, "Quantizer mixed", has the bytes and the arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "base/arena.h"
#include "base/byte_io.h"
#include "kernels/quantize/uniform_plane.h"
#include "kvserve/error.h"

namespace kvserve {

// Tokens and heads with one grid; both ascend.
struct ClassedRun {
  std::span<const std::uint32_t> rows;  // indices into the kept rows
  std::span<const std::uint32_t> heads;
  std::uint32_t levels = 16;  // 2..256
  [[nodiscard]] std::size_t values(std::size_t dim) const {
    return rows.size() * heads.size() * dim;
  }
};

// Values are finite, [row, head, dim]. `kept` are the rows that are coded, ascending; each run has
// some of them. Options without a fixed step or dead zone; its levels are the nominal ones. Memory
// is the arena's; one thread.
class ClassedPlane {
 public:
  ClassedPlane(const UniformOptions& options, std::span<const std::uint32_t> kept,
               std::size_t heads, std::size_t dim, Arena& arena);

  // Appends the side bytes; symbols are those of the runs, one after another.
  void Encode(std::span<const float> values, std::span<const ClassedRun> runs, ByteWriter& side,
              std::span<std::uint8_t> symbols);
  // Fills the kept rows. kCorruptData.
  [[nodiscard]] Status Decode(ByteReader& side, std::span<const ClassedRun> runs,
                              std::span<const std::uint8_t> symbols, std::span<float> values);

 private:
  struct RunPlane;
  [[nodiscard]] RunPlane Open(const ClassedRun& run) const;
  [[nodiscard]] Grids GridsOf(const ClassedRun& run, std::size_t ranges) const;
  [[nodiscard]] std::size_t RangeOf(const ClassedRun& run, std::size_t index) const;
  template <typename Visit>
  void ForEachHead(const ClassedRun& run, const Visit& visit) const;
  void ObserveKept(std::span<const float> values);
  void WriteMeans(const RunPlane& plane, std::span<const float> values,
                  std::span<const std::uint8_t> symbols, ByteWriter& side) const;

  const UniformOptions& options_;
  std::span<const std::uint32_t> kept_;
  std::size_t heads_;
  std::size_t dim_;
  Arena& arena_;
  UniformOptions ranges_;  // without means, which each run has for itself
  UniformPlane uniform_;
};

}  // namespace kvserve
