// The side section of a frame: a varint length per plane, then the bytes of all planes. Without any
// bytes the section is empty.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

// The bytes of each plane, which point into `section`; `planes` keeps its memory. kCorruptData when
// lengths and bytes do not agree.
[[nodiscard]] Status SplitSide(std::span<const std::byte> section, std::size_t count,
                               std::vector<std::span<const std::byte>>& planes);

}  // namespace kvserve
