// One plane on its way through uniform quantization: ranges, grids, conditional means and escapes,
// in both directions and by any division into rows. docs/FORMAT_STAGES.md, "Quantizer uniform", has
// the bytes and the arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "base/arena.h"
#include "base/byte_io.h"
#include "kernels/quantize/escapes.h"
#include "kernels/quantize/grid_code.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize/range_layout.h"
#include "kvserve/error.h"

namespace kvserve {

struct UniformOptions {
  std::uint32_t levels = 16;  // 2..256
  RangeAxis axis = RangeAxis::kChannel;
  std::size_t group = 64;  // axis kGroup
  std::size_t block = 0;   // axis kChannel: rows that share a channel's range; 0: all
  GridForm form = GridForm::kSpan;
  bool fixed = false;  // one grid for the plane, from `step`; axis and form do not count
  float step = 1.0F;
  bool half = false;       // grids are written as float16
  float dead_zone = 0.0F;  // 0..1: how much wider the bin of 0 is, in steps
  bool means = false;      // decode to conditional means
};

// Values are finite, [row, column] with heads * dim columns. Everything is kept in the arena, which
// outlives the plane; one thread at a time but for Quantize and Dequantize. Either BeginEncoding,
// Observe of all rows in order, Finish and then Quantize of any rows; or Open, then Dequantize of
// any.
class UniformPlane {
 public:
  UniformPlane(const UniformOptions& options, std::size_t rows, std::size_t heads, std::size_t dim,
               Arena& arena);

  void BeginEncoding();
  void Observe(std::size_t first_row, std::span<const float> values);
  // Appends the side bytes, none for a plane without rows.
  void Finish(ByteWriter& side);
  void Quantize(std::size_t first_row, std::span<const float> values,
                std::span<std::uint8_t> symbols) const;

  // Reads what Finish wrote. kCorruptData.
  [[nodiscard]] Status Open(ByteReader& side);
  // Symbols are below `levels`.
  void Dequantize(std::size_t first_row, std::span<const std::uint8_t> symbols,
                  std::span<float> values) const;

  // Of the ranges, after Finish (with `inverse`) or Open, for values times 2^shift.
  [[nodiscard]] const Grids& grids() const { return grids_; }
  [[nodiscard]] std::int8_t shift() const { return shift_; }

 private:
  void BeginSample();
  void KeepSample(std::size_t first_row, std::span<const float> values);
  void FindEscapes(std::size_t first_row, std::span<const float> values);
  void TakeGrids();
  void SetFixedGrid();
  void WriteGrids(ByteWriter& side);
  void WriteGridCodes(ByteWriter& side);
  void CompleteGrids();
  void WriteMeans(ByteWriter& side) const;
  [[nodiscard]] Status ReadGrids(ByteReader& side);
  void QuantizeShifted(std::size_t first_row, std::span<const float> values,
                       std::span<std::uint8_t> symbols) const;

  const UniformOptions& options_;
  Arena& arena_;
  std::size_t rows_;
  RangeLayout layout_;
  std::span<float> low_, high_;                      // [range]; encoder
  std::span<float> zero_, step_, inverse_, centre_;  // [range]
  Grids grids_;                                      // views of these
  std::int8_t shift_ = 0;    // values are multiplied by 2^shift before grids apply
  std::span<float> sample_;  // [every stride-th row, column]; encoder
  std::size_t sample_stride_ = 1;
  EscapeList found_escapes_;         // encoder
  std::span<const Escape> escapes_;  // decoder
};

// Takes a plane's shift back; the largest floats may round up past the end of their range.
void Unshift(std::int8_t shift, std::span<float> values);

}  // namespace kvserve
