// Splits 16- and 32-bit floats into a byte that compresses and bytes that do not, and joins them
// again; levels of byte columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvserve {

// With h the bits of a 16-bit element, or the upper 16 bits of a 32-bit one (little-endian, at any
// address): exponent = h >> 7 & 0xFF, rest = h >> 8 & 0x80 | h & 0x7F. `low` has the lower 16 bits
// of 32-bit elements, two bytes each. All spans hold one entry per element; exact, and the same on
// every instruction set.
void SplitExponents16(std::span<const std::byte> elements, std::span<std::uint8_t> exponents,
                      std::span<std::byte> rest);
void SplitExponents32(std::span<const std::byte> elements, std::span<std::uint8_t> exponents,
                      std::span<std::byte> rest, std::span<std::byte> low);

// The inverse on [row, column] with as many columns as `levels` has: the exponent is the sum of
// exponents and level modulo 256.
void JoinExponents16(std::span<const std::uint8_t> exponents, std::span<const std::uint8_t> levels,
                     std::span<const std::byte> rest, std::span<std::byte> elements);
void JoinExponents32(std::span<const std::uint8_t> exponents, std::span<const std::uint8_t> levels,
                     std::span<const std::byte> rest, std::span<const std::byte> low,
                     std::span<std::byte> elements);

// Adds the bytes [row, column] of each column to `sums`; at most 2^24 rows in all.
void AddByteColumns(std::span<const std::uint8_t> bytes, std::span<std::uint32_t> sums);

// Subtracts its column's level from each byte [row, column], modulo 256.
void SubtractByteLevels(std::span<std::uint8_t> bytes, std::span<const std::uint8_t> levels);

// Oracles.
void SplitExponents16Ref(std::span<const std::byte> elements, std::span<std::uint8_t> exponents,
                         std::span<std::byte> rest);
void SplitExponents32Ref(std::span<const std::byte> elements, std::span<std::uint8_t> exponents,
                         std::span<std::byte> rest, std::span<std::byte> low);
void JoinExponents16Ref(std::span<const std::uint8_t> exponents,
                        std::span<const std::uint8_t> levels, std::span<const std::byte> rest,
                        std::span<std::byte> elements);
void JoinExponents32Ref(std::span<const std::uint8_t> exponents,
                        std::span<const std::uint8_t> levels, std::span<const std::byte> rest,
                        std::span<const std::byte> low, std::span<std::byte> elements);
void AddByteColumnsRef(std::span<const std::uint8_t> bytes, std::span<std::uint32_t> sums);
void SubtractByteLevelsRef(std::span<std::uint8_t> bytes, std::span<const std::uint8_t> levels);

}  // namespace kvserve
