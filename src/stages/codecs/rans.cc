// Entropy coding of all planes into one rANS stream. Each plane takes the cheapest of: packed
// digits, one constant symbol, a table of its own, or a table that an earlier plane has sent.
#include "kernels/rans/rans.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "base/try.h"
#include "kernels/bitpack/bitpack.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr StageInfo kInfo = {
    .id = 0x0403,
    .name = "rans",
    .kind = StageKind::kCodec,
    .lossless = true,
    .summary = "interleaved range asymmetric numeral systems, a table per plane",
};

// First byte of a plane that has symbols and more than one to choose from. From kReuse on: the
// table that was sent that many tables ago (kReuse: the latest).
constexpr std::uint8_t kPacked = 0;
constexpr std::uint8_t kConstant = 1;
constexpr std::uint8_t kNewTable = 2;
constexpr std::uint8_t kReuse = 3;
constexpr std::size_t kReusable = 16;

bool HasSymbols(const SymbolPlane& plane) {
  return plane.count() > 0 && plane.alphabet > 1;
}

// Fewer lanes for small frames, whose states would weigh.
unsigned LanesLog2For(std::uint64_t coded_symbols) {
  if (coded_symbols >= 1U << 15) return kMaxRansLanesLog2;
  if (coded_symbols >= 1U << 11) return 3;
  return 0;
}

// Tables sent so far, and the planes' parts of the stream; a deque keeps addresses.
struct Tables {
  std::deque<RansTable> sent;
  [[nodiscard]] std::size_t reusable() const { return std::min(sent.size(), kReusable); }
  [[nodiscard]] const RansTable& ago(std::size_t n) const { return sent[sent.size() - 1 - n]; }
};

// Only symbols of the alphabet have a frequency.
bool Fits(const RansTable& table, std::uint32_t alphabet) {
  const auto frequencies = std::span(table.frequency).subspan(alphabet);
  return std::ranges::all_of(frequencies, [](std::uint16_t frequency) { return frequency == 0; });
}

// A table over the wire and back, for its size.
std::size_t TableBytes(const RansTable& table) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  WriteRansTable(table, writer);
  return bytes.size();
}

class Rans : public Codec {
 public:
  Status Encode(const FrameContext& /*frame*/, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    Tables tables;
    std::vector<RansPart> parts;
    std::vector<const SymbolPlane*> packed;
    std::uint64_t coded = 0;
    for (const auto& plane : planes) {
      if (!HasSymbols(plane)) continue;
      const RansTable* table = nullptr;
      const std::uint8_t mode = Choose(plane, tables, table, out);
      if (mode == kPacked) packed.push_back(&plane);
      if (table == nullptr) continue;
      parts.push_back({plane.symbols, table});
      coded += plane.count();
    }
    for (const auto* plane : packed) {
      PackSymbols(plane->symbols, plane->alphabet,
                  out.Grow(PackedBytes(plane->count(), plane->alphabet)));
    }
    if (parts.empty()) return {};
    const unsigned lanes_log2 = LanesLog2For(coded);
    out.Put(static_cast<std::uint8_t>(lanes_log2));
    RansEncode(parts, lanes_log2, out);
    return {};
  }

  Status Decode(const FrameContext& /*frame*/, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    Tables tables;
    std::vector<MutableRansPart> parts;
    std::vector<SymbolPlane*> packed;
    for (auto& plane : planes) {
      if (!HasSymbols(plane)) {
        std::fill(plane.symbols.begin(), plane.symbols.end(), std::uint8_t{0});
        continue;
      }
      KVSERVE_ASSIGN(const auto mode, in.Get<std::uint8_t>());
      if (mode == kPacked) {
        packed.push_back(&plane);
      } else if (mode == kConstant) {
        KVSERVE_TRY(FillConstant(in, plane));
      } else {
        KVSERVE_ASSIGN(const RansTable* table, ReadTable(mode, plane.alphabet, tables, in));
        parts.push_back({plane.symbols, table});
      }
    }
    for (auto* plane : packed) {
      KVSERVE_ASSIGN(const auto bytes, in.GetBytes(PackedBytes(plane->count(), plane->alphabet)));
      KVSERVE_TRY(UnpackSymbols(bytes, plane->alphabet, plane->symbols));
    }
    return DecodeStream(parts, in);
  }

  [[nodiscard]] std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    // A coded plane is estimated to be smaller than packed; 0.1 bit per symbol covers the estimate.
    std::uint64_t bytes = 1 + (std::uint64_t{4} << kMaxRansLanesLog2);
    for (const auto& plane : planes) {
      bytes += 2 + PackedBytes(plane.count(), plane.alphabet) + plane.count() / 80;
    }
    return bytes;
  }

 private:
  // Writes the plane's mode and what belongs to it; sets `table` when the plane goes to the stream.
  static std::uint8_t Choose(const SymbolPlane& plane, Tables& tables, const RansTable*& table,
                             ByteWriter& out) {
    const SymbolCounts counts = CountSymbols(plane.symbols);
    const auto occurring =
        std::count_if(counts.begin(), counts.end(), [](std::uint64_t count) { return count > 0; });
    if (occurring == 1) {
      out.Put(kConstant);
      out.Put(plane.symbols.front());
      return kConstant;
    }
    std::uint8_t mode = kPacked;
    std::uint64_t cost = PackedBytes(plane.count(), plane.alphabet) << 19;  // 1/65536 bit
    const RansTable fresh = NormaliseCounts(counts);
    const std::uint64_t fresh_cost =
        CodeLength(counts, fresh) + (static_cast<std::uint64_t>(TableBytes(fresh)) << 19);
    if (fresh_cost < cost) {
      mode = kNewTable;
      cost = fresh_cost;
    }
    for (std::size_t ago = 0; ago < tables.reusable(); ++ago) {
      if (!Fits(tables.ago(ago), plane.alphabet)) continue;  // a decoder refuses it
      const std::uint64_t reused_cost = CodeLength(counts, tables.ago(ago));
      if (reused_cost >= cost) continue;
      mode = static_cast<std::uint8_t>(kReuse + ago);
      cost = reused_cost;
    }
    out.Put(mode);
    if (mode >= kReuse) table = &tables.ago(mode - kReuse);
    if (mode == kNewTable) {
      WriteRansTable(fresh, out);
      table = &tables.sent.emplace_back(fresh);
    }
    return mode;
  }

  static Status FillConstant(ByteReader& in, SymbolPlane& plane) {
    KVSERVE_ASSIGN(const auto symbol, in.Get<std::uint8_t>());
    if (symbol >= plane.alphabet) {
      return MakeError(ErrorCode::kCorruptData, "constant symbol " + std::to_string(symbol) +
                                                    " in an alphabet of " +
                                                    std::to_string(plane.alphabet));
    }
    std::fill(plane.symbols.begin(), plane.symbols.end(), symbol);
    return {};
  }

  static Result<const RansTable*> ReadTable(std::uint8_t mode, std::uint32_t alphabet,
                                            Tables& tables, ByteReader& in) {
    if (mode == kNewTable) {
      KVSERVE_ASSIGN(const RansTable table, ReadRansTable(alphabet, in));
      return &tables.sent.emplace_back(table);
    }
    const std::size_t ago = mode - kReuse;
    if (ago >= tables.reusable()) {
      return MakeError(ErrorCode::kCorruptData, "a plane names a table that was not sent");
    }
    const RansTable& table = tables.ago(ago);
    if (!Fits(table, alphabet)) {
      return MakeError(ErrorCode::kCorruptData, "a reused table exceeds the plane's alphabet");
    }
    return &table;
  }

  static Status DecodeStream(std::span<const MutableRansPart> parts, ByteReader& in) {
    if (parts.empty()) return {};
    KVSERVE_ASSIGN(const auto lanes_log2, in.Get<std::uint8_t>());
    if (lanes_log2 > kMaxRansLanesLog2) {
      return MakeError(ErrorCode::kCorruptData, "unknown number of lanes");
    }
    KVSERVE_ASSIGN(const auto bytes, in.GetBytes(in.remaining()));
    return RansDecode(bytes, lanes_log2, parts);
  }
};

}  // namespace

const StageEntry& RansStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_codec = [](const Settings&) -> Result<std::unique_ptr<Codec>> {
        return std::make_unique<Rans>();
      }};
  return entry;
}

}  // namespace kvserve
