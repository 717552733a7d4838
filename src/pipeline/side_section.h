// The side section of a frame: a varint length per plane, then the bytes of all planes. Without any
// bytes the section is empty.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/byte_io.h"
#include "kvserve/error.h"

namespace kvserve {

// Side bytes of one plane per stage: transforms in order, then the quantizer.
using StageSides = std::vector<std::vector<std::byte>>;

// Appends them in the order that a decoder reads them in.
void AppendSides(const StageSides& sides, ByteWriter& out);

// The section of these planes; `out` keeps its memory.
void WriteSide(std::span<const StageSides> planes, std::vector<std::byte>& out);

// The bytes of each plane, which point into `section`; `planes` keeps its memory. kCorruptData when
// lengths and bytes do not agree.
[[nodiscard]] Status SplitSide(std::span<const std::byte> section, std::size_t count,
                               std::vector<std::span<const std::byte>>& planes);

}  // namespace kvserve
