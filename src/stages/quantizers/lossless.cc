// Bit-exact split of each element: eight high bits below the sign (the exponent; of fp16 also the
// top three mantissa bits) become the symbol, which is where the redundancy is; sign and the other
// mantissa bits go verbatim. Symbols may be taken relative to a level per column, since channels
// differ in scale far more than the values within one. One-byte elements are symbols as a whole,
// fp8 ones with the sign as their lowest bit: next to no bits would be left to go verbatim.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/plane_bytes.h"
#include "base/try.h"
#include "kernels/exponents/exponents.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr StageInfo kInfo = {
    .id = 0x0303,
    .name = "lossless",
    .kind = StageKind::kQuantizer,
    .lossless = true,
    .summary = "exponents as symbols, sign and mantissa verbatim",
    .domain = QuantizerDomain::kNative,
};

constexpr std::uint8_t kPlain = 0;     // symbols as they are
constexpr std::uint8_t kRelative = 1;  // minus a level per column, which follow as bytes

// log2 of 1..2^31 in 1/65536 bit, by the first eight bits after the leading one. Integers, since
// the choice of a form must be the same everywhere.
class Log2 {
 public:
  constexpr Log2() {
    for (std::uint64_t i = 0; i < fractions_.size(); ++i) {
      std::uint64_t square = (256 + i) << 23;  // [2^31, 2^32)
      for (int bit = 15; bit >= 0; --bit) {
        square = square * square >> 31;
        if (square >> 32 == 0) continue;
        fractions_[i] |= 1U << bit;
        square >>= 1;
      }
    }
  }
  [[nodiscard]] constexpr std::uint64_t operator()(std::uint32_t value) const {
    const int whole = std::bit_width(value) - 1;
    const std::uint32_t mantissa = (std::uint64_t{value} << (31 - whole)) >> 23 & 0xFF;
    return (static_cast<std::uint64_t>(whole) << 16) + fractions_[mantissa];
  }

 private:
  std::array<std::uint32_t, 256> fractions_{};
};
constexpr Log2 kLog2;

using Counts = std::array<std::uint32_t, 256>;

// Bits of symbols with these counts under the table that fits them best, in 1/65536.
std::uint64_t EstimatedBits(const Counts& counts, std::uint32_t total) {
  std::uint64_t bits = total * kLog2(total);
  for (const std::uint32_t count : counts) {
    if (count > 0) bits -= count * kLog2(count);
  }
  return bits;
}

// At least so many symbols of a plane are looked at to choose its form, and a part of the others.
constexpr std::size_t kLeastSample = 4096;
constexpr std::size_t kSampledPart = 16;

// Whether symbols relative to `levels` are so much shorter that the levels pay.
bool LevelsPay(std::span<const std::uint8_t> symbols, std::span<const std::uint8_t> levels) {
  const std::size_t columns = levels.size();
  const std::size_t rows = symbols.size() / columns;
  const std::size_t sample = std::max(kLeastSample, symbols.size() / kSampledPart);
  const std::size_t step = std::max<std::size_t>(1, symbols.size() / sample);
  Counts plain{};
  Counts relative{};
  std::uint32_t sampled_rows = 0;
  for (std::size_t row = 0; row < rows; row += step, ++sampled_rows) {
    const auto* at = &symbols[row * columns];
    for (std::size_t c = 0; c < columns; ++c) {
      ++plain[at[c]];
      ++relative[static_cast<std::uint8_t>(at[c] - levels[c])];
    }
  }
  const auto total = static_cast<std::uint32_t>(sampled_rows * columns);
  const std::uint64_t level_bits = (std::uint64_t{columns} << 19) * sampled_rows / rows;
  return EstimatedBits(relative, total) + level_bits < EstimatedBits(plain, total);
}

// Mean symbol of each column, rounded.
void FindLevels(std::span<const std::uint8_t> symbols, std::span<std::uint8_t> levels,
                Arena& arena) {
  const auto sums = arena.TakeZeroed<std::uint32_t>(levels.size());  // kMaxTokens * 255 < 2^32
  AddByteColumns(symbols, sums);
  const auto rows = static_cast<std::uint32_t>(symbols.size() / levels.size());
  for (std::size_t c = 0; c < levels.size(); ++c) {
    levels[c] = static_cast<std::uint8_t>((std::uint64_t{sums[c]} + rows / 2) / rows);
  }
}

std::span<std::uint8_t> AsSymbols(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
}

// The elements of a plane one after the other: in place, or copied to scratch memory.
std::span<const std::byte> Elements(const ConstPlaneView& plane, Arena& arena) {
  const std::size_t bytes = plane.values() * DTypeBytes(plane.dtype);
  if (plane.contiguous()) return {plane.data, bytes};
  const auto gathered = arena.Take<std::byte>(bytes);
  GatherBytes(plane, gathered);
  return gathered;
}

std::uint8_t Rotated(std::uint8_t byte, unsigned left) {
  return static_cast<std::uint8_t>(byte << left | byte >> (8 - left));
}

// Of a one-byte element, to the left, so that its symbol has the sign lowest.
unsigned SymbolRotation(DType dtype) {
  return DTypeHoldsNumbers(dtype) ? 1 : 0;
}

void SplitBytes(std::span<const std::byte> elements, unsigned left,
                std::span<std::uint8_t> symbols) {
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i] = Rotated(static_cast<std::uint8_t>(elements[i]), left);
  }
}

void JoinBytes(std::span<const std::uint8_t> symbols, std::span<const std::uint8_t> levels,
               unsigned left, std::span<std::byte> elements) {
  const unsigned right = (8 - left) % 8;
  for (std::size_t at = 0; at < symbols.size(); at += levels.size()) {
    for (std::size_t c = 0; c < levels.size(); ++c) {
      const auto symbol = static_cast<std::uint8_t>(symbols[at + c] + levels[c]);
      elements[at + c] = static_cast<std::byte>(Rotated(symbol, right));
    }
  }
}

class Lossless : public Quantizer {
 public:
  Status Plan(const PlaneContext& /*plane*/, DType /*dtype*/, std::uint32_t heads,
              std::uint32_t dim, SymbolPlane& symbols) const override {
    symbols.columns = heads * dim;
    symbols.alphabet = 256;
    return {};
  }

  // Writes for the longer form, with levels, and closes the gap in the rare case without.
  Status QuantizeNative(const PlaneContext& plane, const ConstPlaneView& values,
                        SymbolPlane& symbols, ByteWriter& side) const override {
    const std::size_t count = symbols.count();
    const std::size_t columns = symbols.columns;
    const auto out = side.Grow(1 + columns + count * (DTypeBytes(values.dtype) - 1));
    const auto levels = AsSymbols(out.subspan(1, columns));
    const auto rest = out.subspan(1 + columns);
    const auto elements = Elements(values, *plane.arena);
    const bool bytes = DTypeBytes(values.dtype) == 1;
    const unsigned rotation = SymbolRotation(values.dtype);
    if (bytes) {
      SplitBytes(elements, rotation, symbols.symbols);
    } else if (values.dtype == DType::kFloat32) {
      SplitExponents32(elements, symbols.symbols, rest.first(count), rest.subspan(count));
    } else {
      SplitExponents16(elements, symbols.symbols, rest);
    }
    FindLevels(symbols.symbols, levels, *plane.arena);
    if (bytes && rotation > 0) {  // an even level leaves the sign where it is
      for (std::uint8_t& level : levels) level &= 0xFE;
    }
    if (LevelsPay(symbols.symbols, levels)) {
      out.front() = std::byte{kRelative};
      SubtractByteLevels(symbols.symbols, levels);
      return {};
    }
    out.front() = std::byte{kPlain};
    std::memmove(out.data() + 1, rest.data(), rest.size());
    side.bytes().resize(side.size() - columns);
    return {};
  }

  Status DequantizeNative(const PlaneContext& plane, const SymbolPlane& symbols, ByteReader& side,
                          const PlaneView& values) const override {
    KVSERVE_ASSIGN(const auto form, side.Get<std::uint8_t>());
    if (form > kRelative) return MakeError(ErrorCode::kCorruptData, "unknown form of exponents");
    std::span<const std::uint8_t> levels;
    if (form == kRelative) {
      KVSERVE_ASSIGN(const auto bytes, side.GetBytes(symbols.columns));
      levels = {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
    } else {
      levels = plane.arena->TakeZeroed<std::uint8_t>(symbols.columns);
    }
    const std::size_t count = symbols.count();
    const std::size_t size = DTypeBytes(values.dtype);
    KVSERVE_ASSIGN(const auto rest, side.GetBytes(count * (size - 1)));
    const bool in_place = values.contiguous();
    const std::span<std::byte> elements = in_place ? std::span(values.data, count * size)
                                                   : plane.arena->Take<std::byte>(count * size);
    if (size == 1) {
      JoinBytes(symbols.symbols, levels, SymbolRotation(values.dtype), elements);
    } else if (values.dtype == DType::kFloat32) {
      JoinExponents32(symbols.symbols, levels, rest.first(count), rest.subspan(count), elements);
    } else {
      JoinExponents16(symbols.symbols, levels, rest, elements);
    }
    if (!in_place) ScatterBytes(elements, values);
    return {};
  }
};

}  // namespace

const StageEntry& LosslessStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_quantizer = [](const Settings&) -> Result<std::unique_ptr<Quantizer>> {
        return std::make_unique<Lossless>();
      }};
  return entry;
}

}  // namespace kvserve
