// One plane for the fuzz target of quantizers and transforms: its shape, where it lies in a
// request, and the bytes that fill it.
//
// Read from: u8 dtype, u8 heads - 1 modulo 4, u8 dim - 1, u8 tokens modulo 34, u8 bits (0: the
// request's first token, 1: V, 2: layer 1, 3: values are float16, 4: keys are rotated in
// halves, 5: in neighbours), u8 rows of a tile - 1, u16 size
// of the side bytes and those; the rest fills values or symbols, over and over.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "chosen_stage.h"
#include "pipeline/stage.h"

namespace kvserve::fuzzing {

class PlaneCase {
 public:
  explicit PlaneCase(Choices& choices);
  PlaneCase(const PlaneCase&) = delete;
  PlaneCase& operator=(const PlaneCase&) = delete;

  [[nodiscard]] const PlaneContext& context() const { return context_; }
  // The same plane with scratch memory of its own.
  [[nodiscard]] PlaneContext ContextIn(Arena& arena) const;
  [[nodiscard]] DType dtype() const { return geometry_.dtype; }
  [[nodiscard]] PlaneShape shape() const { return shape_; }
  [[nodiscard]] std::size_t values() const { return std::size_t{shape_.tokens} * shape_.columns(); }
  [[nodiscard]] std::uint32_t tile_rows() const { return tile_rows_; }
  [[nodiscard]] std::span<const std::byte> side() const { return side_; }

  [[nodiscard]] std::vector<float> Floats() const;  // finite
  // Elements of the dtype, any bits.
  void FillElements(std::span<std::byte> elements) const;
  void FillSymbols(std::uint32_t alphabet, std::span<std::uint8_t> symbols) const;
  // Planes before this one, for transforms with feedback.
  [[nodiscard]] std::span<const DecodedPlane> earlier();
  // Statistics and head scores of this shape, for stages that need an artefact.
  void Calibrate();

 private:
  KvGeometry geometry_;
  FrameContext frame_;
  PlaneContext context_;
  PlaneShape shape_;
  std::uint32_t tile_rows_ = 1;
  bool halves_ = false;
  std::span<const std::byte> side_;
  std::span<const std::uint8_t> fill_;
  std::vector<std::vector<float>> earlier_values_;
  std::vector<DecodedPlane> earlier_;
  std::unique_ptr<CalibrationArtefact> artefact_;
};

}  // namespace kvserve::fuzzing
