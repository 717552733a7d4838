// Bit-exact split of each element: eight high bits below the sign (the exponent; of fp16 also the
// top three mantissa bits) become the symbol, which is where the redundancy is; sign and the other
// mantissa bits go verbatim. Symbols may be taken relative to a level per column, since channels
// differ in scale far more than the values within one.
#include <algorithm>
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

// Calls visit(element, index) over [token, head, dim].
template <typename Byte, typename Visit>
void ForEachElement(const BasicPlaneView<Byte>& plane, const Visit& visit) {
  const auto step = plane.dim_stride * static_cast<std::int64_t>(DTypeBytes(plane.dtype));
  std::size_t index = 0;
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      Byte* element = plane.at(token, head, 0);
      for (std::uint32_t d = 0; d < plane.dim; ++d, element += step) visit(element, index++);
    }
  }
}

// An element is 16 bits split into symbol and remainder, after `kLowBytes` verbatim bytes.
template <std::size_t kLowBytes>
void Split(const ConstPlaneView& plane, std::span<std::uint8_t> symbols,
           std::span<std::byte> side) {
  ForEachElement(plane, [&](const std::byte* element, std::size_t i) {
    std::uint16_t high = 0;
    std::memcpy(&high, element + kLowBytes, 2);
    symbols[i] = static_cast<std::uint8_t>(high >> 7);
    side[i] = static_cast<std::byte>((high >> 8 & 0x80U) | (high & 0x7FU));
    if constexpr (kLowBytes > 0) {
      std::memcpy(side.data() + symbols.size() + i * kLowBytes, element, kLowBytes);
    }
  });
}

template <std::size_t kLowBytes>
void Join(std::span<const std::uint8_t> symbols, std::span<const std::uint8_t> levels,
          std::span<const std::byte> side, const PlaneView& plane) {
  std::size_t column = 0;
  ForEachElement(plane, [&](std::byte* element, std::size_t i) {
    const unsigned level = levels.empty() ? 0 : levels[column];
    if (++column == levels.size()) column = 0;
    const unsigned symbol = (symbols[i] + level) & 0xFFU;
    const auto rest = std::to_integer<unsigned>(side[i]);
    const auto high =
        static_cast<std::uint16_t>((rest & 0x80U) << 8 | symbol << 7 | (rest & 0x7FU));
    std::memcpy(element + kLowBytes, &high, 2);
    if constexpr (kLowBytes > 0) {
      std::memcpy(element, side.data() + symbols.size() + i * kLowBytes, kLowBytes);
    }
  });
}

// Mean symbol of each column, rounded.
std::vector<std::uint8_t> ColumnLevels(std::span<const std::uint8_t> symbols, std::size_t columns) {
  std::vector<std::uint64_t> sums(columns);
  for (std::size_t at = 0; at < symbols.size(); at += columns) {
    for (std::size_t c = 0; c < columns; ++c) sums[c] += symbols[at + c];
  }
  const std::uint64_t rows = symbols.size() / columns;
  std::vector<std::uint8_t> levels(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    levels[c] = static_cast<std::uint8_t>((sums[c] + rows / 2) / rows);
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
      Split<2>(values, symbols.symbols, rest);
    } else {
      Split<0>(values, symbols.symbols, rest);
    }
    WriteLevels(symbols, side);
    side.PutBytes(rest);
    return {};
  }

  Status DequantizeNative(const PlaneContext& /*plane*/, const SymbolPlane& symbols,
                          ByteReader& side, const PlaneView& values) const override {
    KVSERVE_ASSIGN(const auto form, side.Get<std::uint8_t>());
    if (form > kRelative) return MakeError(ErrorCode::kCorruptData, "unknown form of exponents");
    std::span<const std::uint8_t> levels;
    if (form == kRelative) {
      KVSERVE_ASSIGN(const auto bytes, side.GetBytes(symbols.columns));
      levels = {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
    }
    KVSERVE_ASSIGN(const auto rest,
                   side.GetBytes(symbols.count() * (DTypeBytes(values.dtype) - 1)));
    if (values.dtype == DType::kFloat32) {
      Join<2>(symbols.symbols, levels, rest, values);
    } else {
      Join<0>(symbols.symbols, levels, rest, values);
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
