// Bit-exact split of each element: eight high bits below the sign (the exponent; of fp16 also the
// top three mantissa bits) become the symbol, which is where the redundancy is; sign and the other
// mantissa bits go verbatim. Symbols may be taken relative to a level per column, since channels
// differ in scale far more than the values within one.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/try.h"
#include "kernels/rans/rans_table.h"
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

constexpr std::size_t kRun = 256;  // elements handled at once, on the stack

// Calls visit(first element, index, elements) for runs of at most kRun elements of one head, in
// [token, head, dim] order.
template <typename Byte, typename Visit>
void ForEachRun(const BasicPlaneView<Byte>& plane, const Visit& visit) {
  std::size_t index = 0;
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      for (std::uint32_t d = 0; d < plane.dim; d += kRun) {
        const std::size_t count = std::min<std::size_t>(kRun, plane.dim - d);
        visit(plane.at(token, head, d), index, count);
        index += count;
      }
    }
  }
}

// Copies elements between a strided run and a contiguous one.
template <typename Element, typename Byte>
void Gather(const Byte* from, std::int64_t stride, Element* to, std::size_t count) {
  if (stride == 1) {
    std::memcpy(to, from, count * sizeof(Element));
    return;
  }
  for (std::size_t i = 0; i < count; ++i, from += stride * std::int64_t{sizeof(Element)}) {
    std::memcpy(to + i, from, sizeof(Element));
  }
}

template <typename Element>
void Scatter(const Element* from, std::byte* to, std::int64_t stride, std::size_t count) {
  if (stride == 1) {
    std::memcpy(to, from, count * sizeof(Element));
    return;
  }
  for (std::size_t i = 0; i < count; ++i, to += stride * std::int64_t{sizeof(Element)}) {
    std::memcpy(to, from + i, sizeof(Element));
  }
}

// The upper 16 bits of an element are split into symbol and remainder; for fp32 the lower 16 bits
// lie behind all remainders.
template <typename Element>
void Split(const ConstPlaneView& plane, std::span<std::uint8_t> symbols,
           std::span<std::byte> side) {
  constexpr unsigned kLowBits = 8 * sizeof(Element) - 16;
  ForEachRun(plane, [&](const std::byte* from, std::size_t index, std::size_t count) {
    std::array<Element, kRun> run;
    Gather(from, plane.dim_stride, run.data(), count);
    std::uint8_t* to = &symbols[index];
    std::byte* rest = &side[index];
    for (std::size_t i = 0; i < count; ++i) {
      const auto high = static_cast<std::uint16_t>(run[i] >> kLowBits);
      to[i] = static_cast<std::uint8_t>(high >> 7);
      rest[i] = static_cast<std::byte>((high >> 8 & 0x80U) | (high & 0x7FU));
    }
    if constexpr (kLowBits > 0) {
      std::array<std::uint16_t, kRun> low;
      for (std::size_t i = 0; i < count; ++i) low[i] = static_cast<std::uint16_t>(run[i]);
      std::memcpy(&side[symbols.size() + 2 * index], low.data(), 2 * count);
    }
  });
}

template <typename Element>
void Join(std::span<const std::uint8_t> symbols, std::span<const std::uint8_t> levels,
          std::span<const std::byte> side, const PlaneView& plane) {
  constexpr unsigned kLowBits = 8 * sizeof(Element) - 16;
  ForEachRun(plane, [&](std::byte* to, std::size_t index, std::size_t count) {
    const std::uint8_t* from = &symbols[index];
    const std::byte* rest = &side[index];
    const std::uint8_t* level = &levels[index % levels.size()];
    std::array<Element, kRun> run;
    for (std::size_t i = 0; i < count; ++i) {
      const auto symbol = static_cast<std::uint8_t>(from[i] + level[i]);
      const auto remainder = static_cast<std::uint8_t>(rest[i]);
      run[i] = static_cast<Element>(
          static_cast<Element>((remainder & 0x80U) << 8 | symbol << 7 | (remainder & 0x7FU))
          << kLowBits);
    }
    if constexpr (kLowBits > 0) {
      std::array<std::uint16_t, kRun> low;
      std::memcpy(low.data(), &side[symbols.size() + 2 * index], 2 * count);
      for (std::size_t i = 0; i < count; ++i) run[i] |= low[i];
    }
    Scatter(run.data(), to, plane.dim_stride, count);
  });
}

// Mean symbol of each column, rounded.
std::vector<std::uint8_t> ColumnLevels(std::span<const std::uint8_t> symbols, std::size_t columns) {
  std::vector<std::uint32_t> sums(columns);  // at most kMaxTokens * 255 < 2^32
  for (std::size_t at = 0; at < symbols.size(); at += columns) {
    for (std::size_t c = 0; c < columns; ++c) sums[c] += symbols[at + c];
  }
  const auto rows = static_cast<std::uint32_t>(symbols.size() / columns);
  std::vector<std::uint8_t> levels(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    levels[c] = static_cast<std::uint8_t>((std::uint64_t{sums[c]} + rows / 2) / rows);
  }
  return levels;
}

// Cost of coding these symbols with a table of their own, in 1/65536 bit.
std::uint64_t EstimatedLength(std::span<const std::uint8_t> symbols) {
  const SymbolCounts counts = CountSymbols(symbols);
  const auto occurring =
      std::count_if(counts.begin(), counts.end(), [](std::uint64_t n) { return n > 0; });
  return occurring < 2 ? 0 : CodeLength(counts, NormaliseCounts(counts));
}

class Lossless : public Quantizer {
 public:
  Status Plan(const PlaneContext& /*plane*/, DType /*dtype*/, std::uint32_t heads,
              std::uint32_t dim, SymbolPlane& symbols) const override {
    symbols.columns = heads * dim;
    symbols.alphabet = 256;
    return {};
  }

  Status QuantizeNative(const PlaneContext& /*plane*/, const ConstPlaneView& values,
                        SymbolPlane& symbols, ByteWriter& side) const override {
    const std::size_t count = symbols.count();
    std::vector<std::byte> rest(count * (DTypeBytes(values.dtype) - 1));
    if (values.dtype == DType::kFloat32) {
      Split<std::uint32_t>(values, symbols.symbols, rest);
    } else {
      Split<std::uint16_t>(values, symbols.symbols, rest);
    }
    WriteLevels(symbols, side);
    side.PutBytes(rest);
    return {};
  }

  Status DequantizeNative(const PlaneContext& /*plane*/, const SymbolPlane& symbols,
                          ByteReader& side, const PlaneView& values) const override {
    KVSERVE_ASSIGN(const auto form, side.Get<std::uint8_t>());
    if (form > kRelative) return MakeError(ErrorCode::kCorruptData, "unknown form of exponents");
    std::vector<std::uint8_t> levels(symbols.columns, 0);
    if (form == kRelative) {
      KVSERVE_ASSIGN(const auto bytes, side.GetBytes(symbols.columns));
      std::memcpy(levels.data(), bytes.data(), bytes.size());
    }
    KVSERVE_ASSIGN(const auto rest,
                   side.GetBytes(symbols.count() * (DTypeBytes(values.dtype) - 1)));
    if (values.dtype == DType::kFloat32) {
      Join<std::uint32_t>(symbols.symbols, levels, rest, values);
    } else {
      Join<std::uint16_t>(symbols.symbols, levels, rest, values);
    }
    return {};
  }

 private:
  // Keeps whichever form is estimated to be shorter.
  static void WriteLevels(SymbolPlane& symbols, ByteWriter& side) {
    const std::size_t columns = symbols.columns;
    const auto levels = ColumnLevels(symbols.symbols, columns);
    std::vector<std::uint8_t> relative(symbols.symbols.begin(), symbols.symbols.end());
    for (std::size_t at = 0; at < relative.size(); at += columns) {
      for (std::size_t c = 0; c < columns; ++c) {
        relative[at + c] = static_cast<std::uint8_t>(relative[at + c] - levels[c]);
      }
    }
    const std::uint64_t level_bits = std::uint64_t{columns} << 19;
    if (EstimatedLength(relative) + level_bits >= EstimatedLength(symbols.symbols)) {
      side.Put(kPlain);
      return;
    }
    side.Put(kRelative);
    side.PutBytes(std::as_bytes(std::span(levels)));
    std::copy(relative.begin(), relative.end(), symbols.symbols.begin());
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
