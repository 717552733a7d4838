#include <cstring>

#include "kernels/exponents/exponents.h"

namespace kvserve {
namespace {

std::uint8_t ExponentOf(std::uint16_t h) {
  return static_cast<std::uint8_t>(h >> 7);
}

std::byte RestOf(std::uint16_t h) {
  return static_cast<std::byte>((h >> 8 & 0x80U) | (h & 0x7FU));
}

std::uint16_t Joined(std::uint8_t exponent, std::byte rest) {
  const auto r = static_cast<std::uint8_t>(rest);
  return static_cast<std::uint16_t>((r & 0x80U) << 8 | exponent << 7 | (r & 0x7FU));
}

}  // namespace

void SplitExponents16Ref(std::span<const std::byte> elements, std::span<std::uint8_t> exponents,
                         std::span<std::byte> rest) {
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    std::uint16_t h = 0;
    std::memcpy(&h, &elements[2 * i], sizeof(h));
    exponents[i] = ExponentOf(h);
    rest[i] = RestOf(h);
  }
}

void SplitExponents32Ref(std::span<const std::byte> elements, std::span<std::uint8_t> exponents,
                         std::span<std::byte> rest, std::span<std::byte> low) {
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    std::uint16_t h = 0;
    std::memcpy(&h, &elements[4 * i + 2], sizeof(h));
    exponents[i] = ExponentOf(h);
    rest[i] = RestOf(h);
    std::memcpy(&low[2 * i], &elements[4 * i], 2);
  }
}

void JoinExponents16Ref(std::span<const std::uint8_t> exponents,
                        std::span<const std::uint8_t> levels, std::span<const std::byte> rest,
                        std::span<std::byte> elements) {
  for (std::size_t row = 0; row < exponents.size(); row += levels.size()) {
    for (std::size_t c = 0; c < levels.size(); ++c) {
      const std::size_t i = row + c;
      const std::uint16_t h = Joined(static_cast<std::uint8_t>(exponents[i] + levels[c]), rest[i]);
      std::memcpy(&elements[2 * i], &h, sizeof(h));
    }
  }
}

void JoinExponents32Ref(std::span<const std::uint8_t> exponents,
                        std::span<const std::uint8_t> levels, std::span<const std::byte> rest,
                        std::span<const std::byte> low, std::span<std::byte> elements) {
  for (std::size_t row = 0; row < exponents.size(); row += levels.size()) {
    for (std::size_t c = 0; c < levels.size(); ++c) {
      const std::size_t i = row + c;
      const std::uint16_t h = Joined(static_cast<std::uint8_t>(exponents[i] + levels[c]), rest[i]);
      std::memcpy(&elements[4 * i], &low[2 * i], 2);
      std::memcpy(&elements[4 * i + 2], &h, sizeof(h));
    }
  }
}

void AddByteColumnsRef(std::span<const std::uint8_t> bytes, std::span<std::uint32_t> sums) {
  for (std::size_t row = 0; row < bytes.size(); row += sums.size()) {
    for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += bytes[row + c];
  }
}

void SubtractByteLevelsRef(std::span<std::uint8_t> bytes, std::span<const std::uint8_t> levels) {
  for (std::size_t row = 0; row < bytes.size(); row += levels.size()) {
    for (std::size_t c = 0; c < levels.size(); ++c) {
      bytes[row + c] = static_cast<std::uint8_t>(bytes[row + c] - levels[c]);
    }
  }
}

}  // namespace kvserve
