// Packing of symbols of any alphabet: blocks of k symbols are k-digit numbers in base `alphabet`,
// stored in w bytes; k and w are the densest choice of at most 7 bytes. For powers of two this is
// plain bit packing, lowest bits first; 3 levels pack 5 to a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvserve/error.h"

namespace kvserve {

struct PackBlock {
  std::uint32_t symbols = 0;
  std::uint32_t bytes = 0;
};

// The block of an alphabet of 2..256: least 8w/k over w in 1..7 with k the most digits that fit,
// the smallest w among equals.
[[nodiscard]] PackBlock PackBlockFor(std::uint32_t alphabet);

// Exact size of `count` packed symbols; 0 for an alphabet of 1. A shorter last block takes the
// fewest bytes that hold its digits.
[[nodiscard]] std::uint64_t PackedBytes(std::uint64_t count, std::uint32_t alphabet);

// First symbol of a block is the lowest digit; block numbers are little-endian. `out` has
// PackedBytes(symbols.size(), alphabet) bytes; symbols are below the alphabet.
void PackSymbols(std::span<const std::uint8_t> symbols, std::uint32_t alphabet,
                 std::span<std::byte> out);

// Inverse of PackSymbols on `in` of exactly PackedBytes(symbols.size(), alphabet) bytes.
// kCorruptData when a block's number has more digits than symbols.
[[nodiscard]] Status UnpackSymbols(std::span<const std::byte> in, std::uint32_t alphabet,
                                   std::span<std::uint8_t> symbols);

// Oracles.
void PackSymbolsRef(std::span<const std::uint8_t> symbols, std::uint32_t alphabet,
                    std::span<std::byte> out);
[[nodiscard]] Status UnpackSymbolsRef(std::span<const std::byte> in, std::uint32_t alphabet,
                                      std::span<std::uint8_t> symbols);

}  // namespace kvserve
