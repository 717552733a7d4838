// Values that no symbol can stand for within its error bound, with their exact float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/arena.h"
#include "base/byte_io.h"
#include "kvserve/error.h"

namespace kvserve {

struct Escape {
  std::uint64_t index = 0;  // of the value within its plane
  float value = 0.0F;
};

// A list that grows in an arena.
class EscapeList {
 public:
  // In ascending order of index.
  void Add(Escape escape, Arena& arena);
  // Escapes of later values, which both lists hold from now on.
  void Append(const EscapeList& later);
  // varint count, then per escape varint index less that of the one before less 1 (the first: the
  // index), f32 value.
  void Write(ByteWriter& out) const;

 private:
  static constexpr std::size_t kBlock = 62;
  struct Block {
    Block* next = nullptr;
    std::size_t count = 0;
    Escape escapes[kBlock];
  };
  Block* first_ = nullptr;
  Block* last_ = nullptr;
  std::uint64_t count_ = 0;
};

// In the arena. kCorruptData for truncated bytes, an index at or beyond `values`, or a value that
// is not finite.
[[nodiscard]] Result<std::span<const Escape>> ReadEscapes(std::uint64_t values, Arena& arena,
                                                          ByteReader& in);

// Puts those of values [first, first + values.size()) in place.
void ApplyEscapes(std::span<const Escape> escapes, std::uint64_t first, std::span<float> values);

}  // namespace kvserve
