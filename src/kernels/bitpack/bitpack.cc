// Whole blocks by multiplication instead of division: for numbers below 2^56 and alphabets up to
// 256, floor(number / alphabet) is the high half of number * (floor(2^64 / alphabet) + 1).
#include "kernels/bitpack/bitpack.h"

#include <bit>
#include <cstring>

#include "base/try.h"

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

struct Shift {
  unsigned bits;
  explicit Shift(std::uint32_t a) : bits(static_cast<unsigned>(std::countr_zero(a))) {}
  [[nodiscard]] std::uint64_t Append(std::uint64_t number, std::uint8_t digit) const {
    return number << bits | digit;
  }
  [[nodiscard]] std::uint8_t Split(std::uint64_t& number) const {
    const auto digit = static_cast<std::uint8_t>(number & ((1U << bits) - 1));
    number >>= bits;
    return digit;
  }
};

template <typename Radix>
void PackBlocks(const Radix& radix, PackBlock block, std::size_t blocks,
                const std::uint8_t* symbols, std::byte* out) {
  for (std::size_t b = 0; b < blocks; ++b, symbols += block.symbols, out += block.bytes) {
    std::uint64_t number = 0;
    for (std::uint32_t i = block.symbols; i-- > 0;) number = radix.Append(number, symbols[i]);
    std::memcpy(out, &number, block.bytes);
  }
}

// Returns whether every number had no more digits than symbols.
template <typename Radix>
bool UnpackBlocks(const Radix& radix, PackBlock block, std::size_t blocks, const std::byte* in,
                  std::uint8_t* symbols) {
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
  if (alphabet <= 1) return;
  const PackBlock block = PackBlockFor(alphabet);
  const std::size_t blocks = symbols.size() / block.symbols;
  if (std::has_single_bit(alphabet)) {
    PackBlocks(Shift(alphabet), block, blocks, symbols.data(), out.data());
  } else {
    PackBlocks(MultiplyDivide(alphabet), block, blocks, symbols.data(), out.data());
  }
  PackSymbolsRef(symbols.subspan(blocks * block.symbols), alphabet,
                 out.subspan(blocks * block.bytes));
}

Status UnpackSymbols(std::span<const std::byte> in, std::uint32_t alphabet,
                     std::span<std::uint8_t> symbols) {
  if (alphabet <= 1) return UnpackSymbolsRef(in, alphabet, symbols);
  const PackBlock block = PackBlockFor(alphabet);
  const std::size_t blocks = symbols.size() / block.symbols;
  const bool valid =
      std::has_single_bit(alphabet)
          ? UnpackBlocks(Shift(alphabet), block, blocks, in.data(), symbols.data())
          : UnpackBlocks(MultiplyDivide(alphabet), block, blocks, in.data(), symbols.data());
  if (!valid) return MakeError(ErrorCode::kCorruptData, "a packed block is out of range");
  return UnpackSymbolsRef(in.subspan(blocks * block.bytes), alphabet,
                          symbols.subspan(blocks * block.symbols));
}

}  // namespace kvserve
