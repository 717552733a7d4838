// The KV of all calibration texts, kept in the cache's type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/view.h"

namespace kvserve {

// The longest chunks of which an engine holds all tokens in all layers, those with windows too.
[[nodiscard]] std::uint32_t WholeChunkTokens(const KvGeometry& geometry);

// Tokens of all texts, one text after the other, are the rows of every plane. One thread at a time,
// but for const functions.
class CalibrationTexts {
 public:
  struct Text {
    std::size_t first_row = 0;
    std::uint32_t tokens = 0;
  };

  explicit CalibrationTexts(const KvGeometry& geometry);

  // A chunk of this geometry that follows the last one, or begins a text; its bytes are copied.
  // kUnsupported when a layer or a token of it is not there (a window shorter than the chunk).
  [[nodiscard]] Status Add(const ConstKvView& chunk);

  [[nodiscard]] const KvGeometry& geometry() const { return geometry_; }
  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::span<const Text> texts() const { return texts_; }
  // All of a text, also of layers with a window. Valid until the next Add.
  [[nodiscard]] ConstKvView View(std::size_t text) const;
  // Plane [2 * layer + kind] as float32 [row, head * dim], keys before RoPE where their rotation is
  // known. kBadInput when a value is not finite.
  [[nodiscard]] Status Load(std::size_t plane, std::vector<float>& out) const;

 private:
  [[nodiscard]] ConstPlaneView Plane(std::size_t text, std::size_t plane) const;

  KvGeometry geometry_;
  std::vector<Text> texts_;
  std::vector<std::vector<std::vector<std::byte>>> planes_;  // [text][2 * layer + kind]
  std::size_t rows_ = 0;
};

}  // namespace kvserve
