#include "kernels/bitpack/bitpack.h"

#include <bit>
#include <cstring>

namespace kvserve {
namespace {

constexpr std::uint32_t kMaxBlockBytes = 7;

// Most digits that fit into `bytes` bytes (at most 7).
std::uint32_t DigitsIn(std::uint32_t bytes, std::uint32_t alphabet) {
  const std::uint64_t limit = std::uint64_t{1} << (8 * bytes);
  std::uint32_t digits = 0;
  for (std::uint64_t numbers = 1; numbers <= limit / alphabet; numbers *= alphabet) ++digits;
  return digits;
}

std::uint32_t BytesOf(std::uint32_t digits, std::uint32_t alphabet) {
  std::uint32_t bytes = 0;
  while (digits > 0 && DigitsIn(bytes, alphabet) < digits) ++bytes;
  return bytes;
}

// Division as multiplication: for numbers below 2^56 and alphabets up to 256, floor(number /
// alphabet) is the high half of number * (floor(2^64 / alphabet) + 1).
struct MultiplyDivide {
  std::uint32_t alphabet;
  std::uint64_t reciprocal;
  explicit MultiplyDivide(std::uint32_t a) : alphabet(a), reciprocal(UINT64_MAX / a + 1) {}
  [[nodiscard]] std::uint64_t Append(std::uint64_t number, std::uint8_t digit) const {
    return number * alphabet + digit;
  }
  [[nodiscard]] std::uint8_t Split(std::uint64_t& number) const {
    const auto quotient =
        static_cast<std::uint64_t>((static_cast<unsigned __int128>(number) * reciprocal) >> 64);
    const auto digit = static_cast<std::uint8_t>(number - quotient * alphabet);
    number = quotient;
    return digit;
  }
};

// Powers of two: eight symbols at a time, as fields that are moved together in three doublings.
template <unsigned kBits>
struct Fields {
  // The low `bits` of every lane of `width` bits.
  static constexpr std::uint64_t Mask(unsigned bits, unsigned width) {
    std::uint64_t mask = 0;
    for (unsigned at = 0; at < 64; at += width) mask |= ((std::uint64_t{1} << bits) - 1) << at;
    return mask;
  }
  // Joins the two fields of each lane of 2 * width bits.
  template <unsigned kField, unsigned kWidth>
  static std::uint64_t Join(std::uint64_t x) {
    constexpr std::uint64_t kLow = Mask(kField, 2 * kWidth);
    return (x & kLow) | ((x >> (kWidth - kField)) & (kLow << kField));
  }
  template <unsigned kField, unsigned kWidth>
  static std::uint64_t Part(std::uint64_t x) {
    constexpr std::uint64_t kLow = Mask(kField, 2 * kWidth);
    return (x & kLow) | ((x & (kLow << kField)) << (kWidth - kField));
  }

  static std::byte* Pack(std::span<const std::uint8_t> symbols, std::byte* out) {
    for (std::size_t i = 0; i < symbols.size(); i += 8, out += kBits) {
      std::uint64_t x = 0;
      std::memcpy(&x, &symbols[i], 8);
      x = Join<4 * kBits, 32>(Join<2 * kBits, 16>(Join<kBits, 8>(x)));
      std::memcpy(out, &x, kBits);
    }
    return out;
  }
  static const std::byte* Unpack(const std::byte* in, std::span<std::uint8_t> symbols) {
    constexpr std::uint64_t kUsed = (std::uint64_t{1} << (8 * kBits)) - 1;
    const std::byte* const end = in + symbols.size() / 8 * kBits;
    for (std::size_t i = 0; i < symbols.size(); i += 8, in += kBits) {
      std::uint64_t x = 0;
      if (end - in >= 8) {  // one load of whole words is faster than of odd sizes
        std::memcpy(&x, in, 8);
        x &= kUsed;
      } else {
        std::memcpy(&x, in, kBits);
      }
      x = Part<kBits, 8>(Part<2 * kBits, 16>(Part<4 * kBits, 32>(x)));
      std::memcpy(&symbols[i], &x, 8);
    }
    return in;
  }
};

using PackFunction = std::byte* (*)(std::span<const std::uint8_t>, std::byte*);
using UnpackFunction = const std::byte* (*)(const std::byte*, std::span<std::uint8_t>);
constexpr PackFunction kPackFields[] = {Fields<1>::Pack, Fields<2>::Pack, Fields<3>::Pack,
                                        Fields<4>::Pack, Fields<5>::Pack, Fields<6>::Pack,
                                        Fields<7>::Pack};
constexpr UnpackFunction kUnpackFields[] = {Fields<1>::Unpack, Fields<2>::Unpack, Fields<3>::Unpack,
                                            Fields<4>::Unpack, Fields<5>::Unpack, Fields<6>::Unpack,
                                            Fields<7>::Unpack};

void PackBlocks(const MultiplyDivide& radix, PackBlock block, std::size_t blocks,
                const std::uint8_t* symbols, std::byte* out) {
  for (std::size_t b = 0; b < blocks; ++b, symbols += block.symbols, out += block.bytes) {
    std::uint64_t number = 0;
    for (std::uint32_t i = block.symbols; i-- > 0;) number = radix.Append(number, symbols[i]);
    std::memcpy(out, &number, block.bytes);
  }
}

// Returns whether every number had no more digits than symbols.
bool UnpackBlocks(const MultiplyDivide& radix, PackBlock block, std::size_t blocks,
                  const std::byte* in, std::uint8_t* symbols) {
  std::uint64_t excess = 0;
  for (std::size_t b = 0; b < blocks; ++b, symbols += block.symbols, in += block.bytes) {
    std::uint64_t number = 0;
    std::memcpy(&number, in, block.bytes);
    for (std::uint32_t i = 0; i < block.symbols; ++i) symbols[i] = radix.Split(number);
    excess |= number;
  }
  return excess == 0;
}

}  // namespace

PackBlock PackBlockFor(std::uint32_t alphabet) {
  PackBlock best;
  for (std::uint32_t bytes = 1; bytes <= kMaxBlockBytes; ++bytes) {
    const std::uint32_t digits = DigitsIn(bytes, alphabet);
    if (best.symbols == 0 || bytes * best.symbols < best.bytes * digits) best = {digits, bytes};
  }
  return best;
}

std::uint64_t PackedBytes(std::uint64_t count, std::uint32_t alphabet) {
  if (alphabet <= 1) return 0;
  const PackBlock block = PackBlockFor(alphabet);
  return count / block.symbols * block.bytes +
         BytesOf(static_cast<std::uint32_t>(count % block.symbols), alphabet);
}

void PackSymbols(std::span<const std::uint8_t> symbols, std::uint32_t alphabet,
                 std::span<std::byte> out) {
  if (alphabet <= 1 || symbols.empty()) return;
  if (alphabet == 256) {
    std::memcpy(out.data(), symbols.data(), symbols.size());
    return;
  }
  std::size_t done = 0;
  std::byte* end = out.data();
  if (std::has_single_bit(alphabet)) {
    done = symbols.size() / 8 * 8;
    end = kPackFields[std::countr_zero(alphabet) - 1](symbols.first(done), end);
  } else {
    const PackBlock block = PackBlockFor(alphabet);
    const std::size_t blocks = symbols.size() / block.symbols;
    PackBlocks(MultiplyDivide(alphabet), block, blocks, symbols.data(), end);
    done = blocks * block.symbols;
    end += blocks * block.bytes;
  }
  PackSymbolsRef(symbols.subspan(done), alphabet, out.subspan(end - out.data()));
}

Status UnpackSymbols(std::span<const std::byte> in, std::uint32_t alphabet,
                     std::span<std::uint8_t> symbols) {
  if (alphabet <= 1 || symbols.empty()) return UnpackSymbolsRef(in, alphabet, symbols);
  if (alphabet == 256) {
    std::memcpy(symbols.data(), in.data(), symbols.size());
    return {};
  }
  std::size_t done = 0;
  const std::byte* end = in.data();
  if (std::has_single_bit(alphabet)) {
    done = symbols.size() / 8 * 8;
    end = kUnpackFields[std::countr_zero(alphabet) - 1](end, symbols.first(done));
  } else {
    const PackBlock block = PackBlockFor(alphabet);
    const std::size_t blocks = symbols.size() / block.symbols;
    if (!UnpackBlocks(MultiplyDivide(alphabet), block, blocks, end, symbols.data())) {
      return MakeError(ErrorCode::kCorruptData, "a packed block is out of range");
    }
    done = blocks * block.symbols;
    end += blocks * block.bytes;
  }
  return UnpackSymbolsRef(in.subspan(end - in.data()), alphabet, symbols.subspan(done));
}

}  // namespace kvserve
