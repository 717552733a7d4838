// LZ4 over the symbols of all planes, one byte per symbol, in pieces that threads take one each:
// several small planes, or some rows of a large one. Pieces are several times LZ4's window, so that
// cutting costs next to nothing; what does not shrink is stored.
#include <lz4.h>

#include <algorithm>
#include <cstring>

#include "base/try.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kAcceleration = 1;

// First byte of the stream.
constexpr std::uint8_t kStored = 0;  // one byte per symbol follows
constexpr std::uint8_t kPieces = 1;  // lengths of all pieces, then the pieces

constexpr std::size_t kPieceSymbols = std::size_t{1} << 18;

constexpr ParameterInfo kParameters[] = {
    {.id = kAcceleration,
     .name = "acceleration",
     .type = ParameterType::kInteger,
     .low = 1,
     .high = 1024,
     .default_k = 1,
     .help = "speed of LZ4 for ratio: larger is faster and shrinks less"},
};

constexpr StageInfo kInfo = {
    .id = 0x0405,
    .name = "lz4",
    .kind = StageKind::kCodec,
    .lossless = true,
    .parameters = kParameters,
    .summary = "LZ4 over bytes of symbols",
};

std::size_t TotalSymbols(std::span<const SymbolPlane> planes) {
  std::size_t total = 0;
  for (const auto& plane : planes) total += plane.count();
  return total;
}

// Rows of a plane that go into one piece.
std::uint32_t PieceRows(const SymbolPlane& plane) {
  return std::max(1U, static_cast<std::uint32_t>(kPieceSymbols / plane.columns));
}

// Calls visit(piece) for all pieces in coding order: planes up to kPieceSymbols are gathered while
// they fit in one piece, larger ones are cut.
template <typename Visit>
void ForEachPiece(std::span<const SymbolPlane> planes, const Visit& visit) {
  for (std::size_t p = 0; p < planes.size();) {
    const std::uint32_t tokens = planes[p].tokens;
    if (planes[p].count() > kPieceSymbols) {
      const std::uint32_t rows = PieceRows(planes[p]);
      for (std::uint32_t row = 0; row < tokens; row += rows) {
        visit(SymbolPiece{p, 1, row, std::min(rows, tokens - row)});
      }
      ++p;
      continue;
    }
    std::size_t end = p;
    std::size_t symbols = 0;
    for (; end < planes.size() && symbols + planes[end].count() <= kPieceSymbols; ++end) {
      symbols += planes[end].count();
    }
    if (symbols > 0) visit(SymbolPiece{p, end - p, 0, 0});
    p = end;
  }
}

std::size_t CountPieces(std::span<const SymbolPlane> planes) {
  std::size_t count = 0;
  ForEachPiece(planes, [&](const SymbolPiece&) { ++count; });
  return count;
}

// Symbols of a plane that belong to the piece.
std::span<std::uint8_t> PartOf(const SymbolPiece& piece, const SymbolPlane& plane) {
  if (piece.rows == 0) return plane.symbols;
  return plane.symbols.subspan(std::size_t{piece.first_row} * plane.columns,
                               std::size_t{piece.rows} * plane.columns);
}

std::span<const SymbolPlane> PlanesOf(const SymbolPiece& piece,
                                      std::span<const SymbolPlane> planes) {
  return planes.subspan(piece.first_plane, piece.planes);
}

// From the shapes alone: a decoder's planes may have no storage yet.
std::size_t CountOf(const SymbolPiece& piece, std::span<const SymbolPlane> planes) {
  if (piece.rows == 0) return TotalSymbols(PlanesOf(piece, planes));
  return std::size_t{piece.rows} * planes[piece.first_plane].columns;
}

// A plain loop vectorises where max_element does not.
Status CheckAlphabet(std::span<const std::uint8_t> symbols, std::uint32_t alphabet) {
  std::uint8_t largest = 0;
  for (const std::uint8_t symbol : symbols) largest = std::max(largest, symbol);
  if (largest < alphabet) return {};
  return MakeError(ErrorCode::kCorruptData,
                   "a symbol is outside the alphabet of " + std::to_string(alphabet));
}

// One piece as it is coded and what it is coded to; as many bytes as symbols: stored.
struct CodedPiece {
  SymbolPiece piece;
  std::size_t symbols = 0;
  std::span<const std::byte> bytes;
};

Status DecodePiece(const CodedPiece& coded, std::span<const SymbolPlane> planes,
                   std::span<std::uint8_t> symbols) {
  if (coded.bytes.size() == coded.symbols) {
    std::memcpy(symbols.data(), coded.bytes.data(), coded.symbols);
  } else {
    const int written = LZ4_decompress_safe(
        reinterpret_cast<const char*>(coded.bytes.data()), reinterpret_cast<char*>(symbols.data()),
        static_cast<int>(coded.bytes.size()), static_cast<int>(coded.symbols));
    if (written < 0 || static_cast<std::size_t>(written) != coded.symbols) {
      return MakeError(ErrorCode::kCorruptData, "LZ4 block is damaged");
    }
  }
  for (const SymbolPlane& plane : PlanesOf(coded.piece, planes)) {
    const std::size_t count = coded.piece.rows == 0 ? plane.count() : coded.symbols;
    KVSERVE_TRY(CheckAlphabet(symbols.first(count), plane.alphabet));
    symbols = symbols.subspan(count);
  }
  return {};
}

class Reader : public SymbolReader {
 public:
  Reader(std::span<const SymbolPlane> planes, std::span<const SymbolPiece> pieces,
         std::span<const CodedPiece> coded)
      : planes_(planes), pieces_(pieces), coded_(coded) {}

  [[nodiscard]] std::span<const SymbolPiece> pieces() const override { return pieces_; }
  [[nodiscard]] Status Read(std::size_t piece, std::span<std::uint8_t> symbols,
                            Arena& /*scratch*/) const override {
    return DecodePiece(coded_[piece], planes_, symbols);
  }

 private:
  std::span<const SymbolPlane> planes_;
  std::span<const SymbolPiece> pieces_;
  std::span<const CodedPiece> coded_;
};

class Lz4 : public Codec {
 public:
  explicit Lz4(int acceleration) : acceleration_(acceleration) {}

  Status Encode(const FrameContext& frame, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    const std::size_t total = TotalSymbols(planes);
    const auto room = frame.arena->Take<std::byte>(total);
    const auto coded = PlanPieces(planes, *frame.arena);
    for (std::size_t i = 0, at = 0; i < coded.size(); at += coded[i++].symbols) {
      coded[i].bytes = room.subspan(at, coded[i].symbols);
    }
    KVSERVE_TRY(frame.workers->Run(coded.size(), [&](std::size_t i, Arena& scratch) {
      return EncodePiece(planes, coded[i], scratch);
    }));
    const std::size_t before = out.size();
    out.Put(kPieces);
    for (const auto& piece : coded) out.PutVarint(piece.bytes.size());
    for (const auto& piece : coded) out.PutBytes(piece.bytes);
    if (out.size() - before < total + sizeof(kStored)) return {};
    out.bytes().resize(before);  // did not shrink: as it is, so that nothing grows
    out.Put(kStored);
    for (const auto& plane : planes) out.PutBytes(std::as_bytes(plane.symbols));
    return {};
  }

  Status Decode(const FrameContext& frame, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    KVSERVE_ASSIGN(const auto coded, ReadPieces(in, planes, *frame.arena));
    return frame.workers->Run(coded.size(), [&](std::size_t i, Arena& scratch) {
      return DecodeInto(coded[i], planes, scratch);
    });
  }

  [[nodiscard]] std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    return 1 + TotalSymbols(planes);
  }

  [[nodiscard]] Result<const SymbolReader*> Open(
      const FrameContext& frame, ByteReader& in,
      std::span<const SymbolPlane> planes) const override {
    KVSERVE_ASSIGN(const auto coded, ReadPieces(in, planes, *frame.arena));
    const auto pieces = frame.arena->Take<SymbolPiece>(coded.size());
    for (std::size_t i = 0; i < coded.size(); ++i) pieces[i] = coded[i].piece;
    return frame.arena->New<Reader>(planes, pieces, coded);
  }

 private:
  static std::span<CodedPiece> PlanPieces(std::span<const SymbolPlane> planes, Arena& arena) {
    const auto coded = arena.Take<CodedPiece>(CountPieces(planes));
    std::size_t i = 0;
    ForEachPiece(planes, [&](const SymbolPiece& piece) {
      coded[i++] = {piece, CountOf(piece, planes), {}};
    });
    return coded;
  }

  // Into the bytes of `coded`, which become those that are used.
  Status EncodePiece(std::span<const SymbolPlane> planes, CodedPiece& coded, Arena& scratch) const {
    const auto of_piece = PlanesOf(coded.piece, planes);
    std::span<const std::uint8_t> symbols = PartOf(coded.piece, of_piece.front());
    if (of_piece.size() > 1) {
      const auto gathered = scratch.Take<std::uint8_t>(coded.symbols);
      auto to = gathered.begin();
      for (const auto& plane : of_piece) {
        to = std::copy(plane.symbols.begin(), plane.symbols.end(), to);
      }
      symbols = gathered;
    }
    auto* to = const_cast<std::byte*>(coded.bytes.data());
    const auto state = scratch.Take<std::uint64_t>((LZ4_sizeofState() + 7) / 8);
    const int written = LZ4_compress_fast_extState(
        state.data(), reinterpret_cast<const char*>(symbols.data()), reinterpret_cast<char*>(to),
        static_cast<int>(coded.symbols), static_cast<int>(coded.symbols) - 1, acceleration_);
    if (written > 0) {
      coded.bytes = coded.bytes.first(static_cast<std::size_t>(written));
    } else {
      std::memcpy(to, symbols.data(), coded.symbols);
    }
    return {};
  }

  static Result<std::span<const CodedPiece>> ReadPieces(ByteReader& in,
                                                        std::span<const SymbolPlane> planes,
                                                        Arena& arena) {
    KVSERVE_ASSIGN(const auto form, in.Get<std::uint8_t>());
    if (form > kPieces) {
      return MakeError(ErrorCode::kCorruptData, "neither stored symbols nor pieces of LZ4");
    }
    const std::size_t total = TotalSymbols(planes);
    const std::size_t least = form == kStored ? total : CountPieces(planes);
    if (in.remaining() < least || (form == kStored && in.remaining() != total)) {
      return MakeError(ErrorCode::kCorruptData, std::to_string(total) + " symbols do not fit in " +
                                                    std::to_string(in.remaining()) + " bytes");
    }
    const auto coded = PlanPieces(planes, arena);
    const auto lengths = arena.Take<std::size_t>(coded.size());
    for (std::size_t i = 0; i < coded.size(); ++i) {
      std::uint64_t length = coded[i].symbols;
      if (form == kPieces) {
        KVSERVE_ASSIGN(length, in.GetVarint());
      }
      if (length == 0 || length > coded[i].symbols) {
        return MakeError(ErrorCode::kCorruptData, "length of a piece is out of range");
      }
      lengths[i] = length;
    }
    for (std::size_t i = 0; i < coded.size(); ++i) {
      KVSERVE_ASSIGN(coded[i].bytes, in.GetBytes(lengths[i]));
    }
    if (in.remaining() == 0) return coded;
    return MakeError(ErrorCode::kCorruptData, "bytes are left over behind the pieces");
  }

  static Status DecodeInto(const CodedPiece& coded, std::span<const SymbolPlane> planes,
                           Arena& scratch) {
    const auto of_piece = PlanesOf(coded.piece, planes);
    if (of_piece.size() == 1) {
      return DecodePiece(coded, planes, PartOf(coded.piece, of_piece.front()));
    }
    std::span<std::uint8_t> symbols = scratch.Take<std::uint8_t>(coded.symbols);
    KVSERVE_TRY(DecodePiece(coded, planes, symbols));
    for (const auto& plane : of_piece) {
      std::copy_n(symbols.begin(), plane.count(), plane.symbols.begin());
      symbols = symbols.subspan(plane.count());
    }
    return {};
  }

  int acceleration_;
};

}  // namespace

const StageEntry& Lz4Stage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_codec = [](const Settings& settings) -> Result<std::unique_ptr<Codec>> {
        return std::make_unique<Lz4>(static_cast<int>(settings.integer(kAcceleration)));
      }};
  return entry;
}

}  // namespace kvserve
