#include "kernels/bitpack/bitpack.h"

#include <algorithm>
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

// Division as multiplication by the reciprocal of a divisor that is no power of two: of 64 bits, so
// that it is exact for numbers below 2^57.
class Divider {
 public:
  explicit Divider(std::uint64_t divisor)
      : divisor_(divisor), shift_(static_cast<unsigned>(std::bit_width(divisor)) - 1) {
    const auto scaled = static_cast<unsigned __int128>(1) << (64 + shift_);
    reciprocal_ = static_cast<std::uint64_t>(scaled / divisor) + 1;
  }
  // Leaves the quotient and gives the remainder.
  [[nodiscard]] std::uint64_t Split(std::uint64_t& number) const {
    const auto high =
        static_cast<std::uint64_t>((static_cast<unsigned __int128>(number) * reciprocal_) >> 64);
    const std::uint64_t quotient = high >> shift_;
    const std::uint64_t remainder = number - quotient * divisor_;
    number = quotient;
    return remainder;
  }

 private:
  std::uint64_t divisor_;
  unsigned shift_;
  std::uint64_t reciprocal_;
};

// Digits of a radix up to 127 by fours and eights, which share most of the arithmetic.
class Radix {
 public:
  explicit Radix(std::uint64_t radix)
      : radix_(radix),
        two_(radix * radix),
        four_(two_ * two_),
        by_radix_((std::uint64_t{1} << kRadixShift) / radix + 1),
        by_two_((std::uint64_t{1} << kTwoShift) / two_ + 1),
        by_four_(four_) {}

  // Eight digits, the lowest in the lowest byte.
  [[nodiscard]] std::uint64_t Join(std::uint64_t digits) const {
    constexpr std::uint64_t kBytes = 0x00FF00FF00FF00FF;
    constexpr std::uint64_t kPairs = 0x0000FFFF0000FFFF;
    const std::uint64_t pairs = (digits & kBytes) + ((digits >> 8) & kBytes) * radix_;
    const std::uint64_t fours = (pairs & kPairs) + ((pairs >> 16) & kPairs) * two_;
    return (fours & 0xFFFFFFFF) + (fours >> 32) * four_;
  }
  [[nodiscard]] std::uint64_t eight() const { return four_ * four_; }

  // Takes the lowest four digits away. Reciprocals are exact, since radix^3 < 2^21 and
  // radix^6 < 2^42.
  [[nodiscard]] std::uint32_t SplitFour(std::uint64_t& number) const {
    const std::uint64_t four = by_four_.Split(number);
    const std::uint64_t high = (four * by_two_) >> kTwoShift;
    const std::uint64_t pairs = (four - high * two_) | high << 32;
    const std::uint64_t odd = ((pairs * by_radix_) >> kRadixShift) & 0x0000007F0000007F;
    const std::uint64_t digits = (pairs - odd * radix_) | odd << 8;
    return static_cast<std::uint32_t>(digits | digits >> 16);
  }

 private:
  static constexpr unsigned kRadixShift = 21;
  static constexpr unsigned kTwoShift = 42;
  std::uint64_t radix_;
  std::uint64_t two_;
  std::uint64_t four_;
  std::uint64_t by_radix_;
  std::uint64_t by_two_;
  Divider by_four_;
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

constexpr std::uint64_t LowBytes(std::uint32_t bytes) {
  return bytes >= 8 ? UINT64_MAX : (std::uint64_t{1} << (8 * bytes)) - 1;
}

// Up to eight bytes, of which `bytes` are wanted. Whole words are faster than odd sizes.
template <typename Byte>
std::uint64_t LoadSome(const Byte* from, const Byte* end, std::uint32_t bytes) {
  std::uint64_t word = 0;
  if (end - from >= 8) {
    std::memcpy(&word, from, 8);
    return word & LowBytes(bytes);
  }
  std::memcpy(&word, from, bytes);
  return word;
}

// What lies behind `bytes` of them is written later.
template <typename Word, typename Byte>
void StoreSome(Word word, Byte* to, const Byte* end, std::uint32_t bytes) {
  if (end - to >= static_cast<std::ptrdiff_t>(sizeof(Word))) {
    std::memcpy(to, &word, sizeof(Word));
  } else {
    std::memcpy(to, &word, bytes);
  }
}

void PackBlocks(std::uint32_t alphabet, PackBlock block, std::span<const std::uint8_t> symbols,
                std::span<std::byte> out) {
  const Radix radix(alphabet);
  const std::uint8_t* const end = symbols.data() + symbols.size();
  std::byte* const out_end = out.data() + out.size();
  std::byte* to = out.data();
  const std::uint32_t top = (block.symbols - 1) / 8 * 8;  // first digit of the highest eight
  for (const auto* from = symbols.data(); from != end; from += block.symbols, to += block.bytes) {
    std::uint64_t number = radix.Join(LoadSome(from + top, end, block.symbols - top));
    for (std::uint32_t i = top; i > 0; i -= 8) {
      number = number * radix.eight() + radix.Join(LoadSome(from + i - 8, end, 8));
    }
    StoreSome(number, to, out_end, block.bytes);
  }
}

// Returns whether every number had no more digits than symbols.
bool UnpackBlocks(std::uint32_t alphabet, PackBlock block, std::span<const std::byte> in,
                  std::span<std::uint8_t> symbols) {
  const Radix radix(alphabet);
  const std::byte* const end = in.data() + in.size();
  const std::uint8_t* const out_end = symbols.data() + symbols.size();
  std::uint64_t excess = 0;
  std::uint8_t* to = symbols.data();
  for (const auto* from = in.data(); from != end; from += block.bytes, to += block.symbols) {
    std::uint64_t number = LoadSome(from, end, block.bytes);
    std::uint32_t i = 0;
    for (; i + 4 <= block.symbols; i += 4) {
      const std::uint32_t four = radix.SplitFour(number);
      std::memcpy(to + i, &four, 4);
    }
    if (i < block.symbols) {
      const std::uint32_t some = radix.SplitFour(number);
      const std::uint32_t left = block.symbols - i;
      excess |= some & ~LowBytes(left);
      StoreSome(some, to + i, out_end, left);
    }
    excess |= number;
  }
  return excess == 0;
}

// Alphabets above 128 leave no room for a second digit in any block.
constexpr std::uint32_t kLargestPacked = 128;

bool AllBelow(std::span<const std::uint8_t> symbols, std::uint32_t alphabet) {
  std::uint8_t largest = 0;  // a plain loop vectorises where max_element does not
  for (const std::uint8_t symbol : symbols) largest = std::max(largest, symbol);
  return largest < alphabet;
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
  if (alphabet > kLargestPacked) {
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
    done = blocks * block.symbols;
    PackBlocks(alphabet, block, symbols.first(done), out.first(blocks * block.bytes));
    end += blocks * block.bytes;
  }
  PackSymbolsRef(symbols.subspan(done), alphabet, out.subspan(end - out.data()));
}

Status UnpackSymbols(std::span<const std::byte> in, std::uint32_t alphabet,
                     std::span<std::uint8_t> symbols) {
  if (alphabet <= 1 || symbols.empty()) return UnpackSymbolsRef(in, alphabet, symbols);
  if (alphabet > kLargestPacked) {
    std::memcpy(symbols.data(), in.data(), symbols.size());
    if (AllBelow(symbols, alphabet)) return {};
    return MakeError(ErrorCode::kCorruptData, "a packed block is out of range");
  }
  std::size_t done = 0;
  const std::byte* end = in.data();
  if (std::has_single_bit(alphabet)) {
    done = symbols.size() / 8 * 8;
    end = kUnpackFields[std::countr_zero(alphabet) - 1](end, symbols.first(done));
  } else {
    const PackBlock block = PackBlockFor(alphabet);
    const std::size_t blocks = symbols.size() / block.symbols;
    done = blocks * block.symbols;
    if (!UnpackBlocks(alphabet, block, in.first(blocks * block.bytes), symbols.first(done))) {
      return MakeError(ErrorCode::kCorruptData, "a packed block is out of range");
    }
    end += blocks * block.bytes;
  }
  return UnpackSymbolsRef(in.subspan(end - in.data()), alphabet, symbols.subspan(done));
}

}  // namespace kvserve
