// Fixed-length packing, plane by plane: no statistics, so the fastest codec that beats bytes.
#include "kernels/bitpack/bitpack.h"

#include "base/try.h"
#include "base/workers.h"
#include "pipeline/stage.h"
#include "pipeline/symbol_pieces.h"

namespace kvserve {
namespace {

constexpr StageInfo kInfo = {
    .id = 0x0402,
    .name = "bitpack",
    .kind = StageKind::kCodec,
    .lossless = true,
    .summary = "packed digits, e.g. 4 bits for 16 levels and 1.6 for 3",
};

std::uint64_t BytesOf(const SymbolPlane& plane) {
  return PackedBytes(plane.count(), plane.alphabet);
}

// A piece is a plane: blocks of digits may lie across its rows.
std::span<const SymbolPiece> PiecesOf(std::span<const SymbolPlane> planes, Arena& arena) {
  const auto pieces = arena.Take<SymbolPiece>(planes.size());
  for (std::size_t p = 0; p < planes.size(); ++p) pieces[p] = {p, 1, 0, 0};
  return pieces;
}

class Reader final : public SymbolReader {
 public:
  Reader(std::span<const SymbolPlane> planes, std::span<const std::span<const std::byte>> bytes,
         Arena& arena)
      : planes_(planes), bytes_(bytes), pieces_(PiecesOf(planes, arena)) {}

  [[nodiscard]] std::span<const SymbolPiece> pieces() const override { return pieces_; }
  [[nodiscard]] Status Read(std::size_t piece, std::span<std::uint8_t> symbols,
                            Arena& /*scratch*/) const override {
    return UnpackSymbols(bytes_[piece], planes_[piece].alphabet, symbols);
  }

 private:
  std::span<const SymbolPlane> planes_;
  std::span<const std::span<const std::byte>> bytes_;
  std::span<const SymbolPiece> pieces_;
};

class Writer final : public SymbolWriter {
 public:
  // `bytes` are those of all planes.
  Writer(std::span<const SymbolPlane> planes, std::span<std::byte> bytes, Arena& arena)
      : planes_(planes),
        bytes_(arena.Take<std::span<std::byte>>(planes.size())),
        pieces_(PiecesOf(planes, arena)) {
    for (std::size_t p = 0; p < planes.size(); ++p) {
      bytes_[p] = bytes.first(BytesOf(planes[p]));
      bytes = bytes.subspan(bytes_[p].size());
    }
  }

  [[nodiscard]] std::span<const SymbolPiece> pieces() const override { return pieces_; }
  Status Count(std::size_t /*plane*/) override { return {}; }
  void Decide(std::size_t /*piece*/) override {}
  void Code(std::size_t piece, Arena& /*scratch*/) override {
    PackSymbols(planes_[piece].symbols, planes_[piece].alphabet, bytes_[piece]);
  }
  void Finish() override {}

 private:
  std::span<const SymbolPlane> planes_;
  std::span<std::span<std::byte>> bytes_;
  std::span<const SymbolPiece> pieces_;
};

class BitPack : public Codec {
 public:
  Status Encode(const FrameContext& frame, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    KVSERVE_ASSIGN(SymbolWriter* const writer, Begin(frame, planes, out));
    return WriteAll(frame, planes.size(), *writer);
  }

  [[nodiscard]] Result<SymbolWriter*> Begin(const FrameContext& frame,
                                            std::span<const SymbolPlane> planes,
                                            ByteWriter& out) const override {
    const auto bytes = out.Grow(static_cast<std::size_t>(MaxEncodedBytes(planes)));
    return frame.arena->New<Writer>(planes, bytes, *frame.arena);
  }

  Status Decode(const FrameContext& frame, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    KVSERVE_ASSIGN(const SymbolReader* const reader, Open(frame, in, planes));
    return frame.workers->Run(planes.size(), [&](std::size_t p, Arena& scratch) {
      return reader->Read(p, planes[p].symbols, scratch);
    });
  }

  [[nodiscard]] Result<const SymbolReader*> Open(
      const FrameContext& frame, ByteReader& in,
      std::span<const SymbolPlane> planes) const override {
    const auto bytes = frame.arena->Take<std::span<const std::byte>>(planes.size());
    for (std::size_t p = 0; p < planes.size(); ++p) {
      KVSERVE_ASSIGN(bytes[p], in.GetBytes(BytesOf(planes[p])));
    }
    if (in.remaining() != 0) {
      return MakeError(ErrorCode::kCorruptData, "bytes follow the packed symbols");
    }
    return frame.arena->New<Reader>(planes, bytes, *frame.arena);
  }

  [[nodiscard]] std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    std::uint64_t bytes = 0;
    for (const auto& plane : planes) bytes += BytesOf(plane);
    return bytes;
  }
};

}  // namespace

const StageEntry& BitPackStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_codec = [](const Settings&) -> Result<std::unique_ptr<Codec>> {
        return std::make_unique<BitPack>();
      }};
  return entry;
}

}  // namespace kvserve
