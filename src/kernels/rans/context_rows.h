// What the coder with a table per symbol does with the rows of a plane: table indices, and sums.
#pragma once

#include <cstdint>
#include <span>

namespace kvserve {

// indices[c] = columns[c] + shift, limited to the tables there are; shift in -128..127.
void ContextIndices(std::span<const std::int8_t> columns, std::int32_t shift,
                    std::span<std::uint8_t> indices);

// Sum of |symbol - 127|.
[[nodiscard]] std::uint64_t SumSizes(std::span<const std::uint8_t> symbols);

// Whether all of them are below `alphabet`, 1..256.
[[nodiscard]] bool AllBelow(std::span<const std::uint8_t> symbols, std::uint32_t alphabet);

// Oracles.
void ContextIndicesRef(std::span<const std::int8_t> columns, std::int32_t shift,
                       std::span<std::uint8_t> indices);
[[nodiscard]] std::uint64_t SumSizesRef(std::span<const std::uint8_t> symbols);
[[nodiscard]] bool AllBelowRef(std::span<const std::uint8_t> symbols, std::uint32_t alphabet);

}  // namespace kvserve
