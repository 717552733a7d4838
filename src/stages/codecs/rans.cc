// Entropy coding of all planes. Plane headers say how each plane is coded; then come pieces that
// can be decoded alone, each with packed planes and a rANS stream of its own. Version 1 was one
// piece over all planes, without its length, and without alias tables.
#include "kernels/rans/rans.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/try.h"
#include "kernels/bitpack/bitpack.h"
#include "kernels/rans/rans_modes.h"
#include "pipeline/stage.h"
#include "pipeline/symbol_pieces.h"

namespace kvserve {
namespace {

constexpr std::string_view kTableChoices[] = {"frame", "calibrated"};
constexpr std::uint8_t kTables = 1;

constexpr ParameterInfo kParameters[] = {
    {.id = kTables,
     .name = "tables",
     .type = ParameterType::kChoice,
     .help = "frequency tables from the frame alone, or also from calibration",
     .choices = kTableChoices,
     .since = 2},
};

constexpr StageInfo kInfo = {
    .id = 0x0403,
    .name = "rans",
    .version = 2,
    .kind = StageKind::kCodec,
    .lossless = true,
    .parameters = kParameters,
    .summary = "interleaved range asymmetric numeral systems, a table per plane",
    .oldest_version = 1,
};

constexpr unsigned kMaxLanesLog2OfVersion1 = 5;

// A state takes 4 bytes, of which about 3 are beyond the entropy: at most 0.6 % of a stream.
constexpr std::uint64_t kBytesPerLane = 512;

unsigned LanesLog2For(std::uint64_t code_length) {
  const std::uint64_t lanes = (code_length >> 19) / kBytesPerLane;
  const auto log2 = static_cast<unsigned>(std::bit_width(std::max<std::uint64_t>(lanes, 1)) - 1);
  return std::min(log2, kMaxRansLanesLog2);
}

std::span<const RansTable> ClassesOf(const CalibrationArtefact* artefact, std::uint32_t alphabet) {
  const EntropyClasses* classes = artefact == nullptr ? nullptr : artefact->entropy(alphabet);
  if (classes == nullptr) return {};
  const auto all = std::span<const RansTable>(classes->frequencies);
  return all.first(std::min<std::size_t>(all.size(), 256 - kRansCalibrated));
}

bool HasChoice(const auto& plane) {
  return plane.alphabet > 1 && std::uint64_t{plane.tokens} * plane.columns > 0;
}

// ---- encoder -----------------------------------------------------------------------------------

struct EncoderPlane {
  RansPlaneCosts costs;
  RansMode mode;
};

// A piece before its length and bytes are written.
struct CodedPiece {
  SymbolCounts counts;  // of a piece of a plane that is cut
  std::uint64_t packed_bytes;
  std::uint64_t coded_symbols;
  std::uint64_t code_length;
  unsigned lanes_log2;
  std::span<std::byte> packed;
  std::span<std::uint16_t> scratch;
  std::span<const std::byte> stream;

  [[nodiscard]] std::size_t bytes() const {
    return packed.size() + (coded_symbols > 0 ? 1 + stream.size() : 0);
  }
};

// Pieces of a plane; `end` is behind the last.
struct PieceRange {
  std::size_t first;
  std::size_t end;
};

// The work of one frame, in its arena.
class PieceWriter final : public SymbolWriter {
 public:
  PieceWriter(const FrameContext& frame, const CalibrationArtefact* artefact,
              std::span<const SymbolPlane> planes, ByteWriter& out)
      : frame_(frame),
        artefact_(artefact),
        planes_(planes),
        out_(out),
        pieces_(CutIntoPieces(planes, *frame.arena)),
        pieces_of_(frame.arena->TakeZeroed<PieceRange>(planes.size())),
        plane_work_(frame.arena->Take<EncoderPlane>(planes.size())),
        coded_(frame.arena->Take<CodedPiece>(pieces_.size())) {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      for (std::size_t p = pieces_[i].first_plane; p < EndOf(pieces_[i]); ++p) {
        if (pieces_of_[p].end == 0) pieces_of_[p].first = i;
        pieces_of_[p].end = i + 1;
      }
    }
  }

  [[nodiscard]] std::span<const SymbolPiece> pieces() const override { return pieces_; }

  Status Count(std::size_t plane) override {
    if (!HasChoice(planes_[plane])) return {};
    SymbolCounts counts{};
    for (std::size_t i = pieces_of_[plane].first; i < pieces_of_[plane].end; ++i) {
      ForEachSegment(pieces_[i], planes_, [&](std::size_t p, std::size_t at, std::size_t count) {
        if (p != plane) return;
        const auto part = CountSymbols(planes_[p].symbols.subspan(at, count), planes_[p].alphabet);
        if (pieces_[i].rows > 0) coded_[i].counts = part;
        for (std::size_t s = 0; s < counts.size(); ++s) counts[s] += part[s];
      });
    }
    return WeighPlane(plane, counts);
  }

  void Decide(std::size_t piece) override {
    for (; headers_ < EndOf(pieces_[piece]); ++headers_) {
      if (!HasChoice(planes_[headers_])) continue;
      plane_work_[headers_].mode =
          WriteRansMode(plane_work_[headers_].costs, Classes(headers_), sent_, out_);
    }
    PreparePiece(piece);
  }

  void Finish() override {
    for (const CodedPiece& piece : coded_) out_.PutVarint(piece.bytes());
    for (const CodedPiece& piece : coded_) {
      out_.PutBytes(piece.packed);
      if (piece.coded_symbols == 0) continue;
      out_.Put(static_cast<std::uint8_t>(piece.lanes_log2));
      out_.PutBytes(piece.stream);
    }
  }

  void Code(std::size_t i, Arena& scratch) override {
    CodedPiece& piece = coded_[i];
    const auto parts = scratch.Take<RansPart>(pieces_[i].planes);
    std::size_t coded = 0;
    std::size_t packed = 0;
    ForEachSegment(pieces_[i], planes_, [&](std::size_t p, std::size_t at, std::size_t count) {
      if (!HasChoice(planes_[p])) return;
      const RansMode& mode = plane_work_[p].mode;
      const std::span<const std::uint8_t> symbols = planes_[p].symbols.subspan(at, count);
      if (mode.table != nullptr) parts[coded++] = {symbols, mode.table};
      if (mode.byte != kRansPacked) return;
      const std::uint32_t alphabet = planes_[p].alphabet;
      const auto bytes = static_cast<std::size_t>(PackedBytes(count, alphabet));
      PackSymbols(symbols, alphabet, piece.packed.subspan(packed, bytes));
      packed += bytes;
    });
    if (coded == 0) return;
    piece.stream =
        RansEncode(parts.first(coded), piece.lanes_log2, RansLayout::kAlias, piece.scratch);
  }

 private:
  static std::size_t EndOf(const SymbolPiece& piece) { return piece.first_plane + piece.planes; }
  [[nodiscard]] std::span<const RansTable> Classes(std::size_t plane) const {
    return ClassesOf(artefact_, planes_[plane].alphabet);
  }

  Status WeighPlane(std::size_t p, const SymbolCounts& counts) {
    const SymbolPlane& plane = planes_[p];
    const auto inside = std::span(counts).first(plane.alphabet);
    if (std::accumulate(inside.begin(), inside.end(), std::uint64_t{0}) != plane.count()) {
      return MakeError(ErrorCode::kInternal, "a symbol is outside of its alphabet");
    }
    RansPlaneCosts& costs = plane_work_[p].costs;
    costs.counts = counts;
    costs.alphabet = plane.alphabet;
    WeighRansModes(Classes(p), PackedBytes(plane.count(), plane.alphabet), costs);
    return {};
  }

  void PreparePiece(std::size_t i) {
    CodedPiece& piece = coded_[i];
    piece.packed_bytes = piece.coded_symbols = piece.code_length = 0;
    piece.stream = {};
    ForEachSegment(pieces_[i], planes_, [&](std::size_t p, std::size_t /*at*/, std::size_t count) {
      if (!HasChoice(planes_[p])) return;
      const RansMode& mode = plane_work_[p].mode;
      if (mode.byte == kRansPacked) piece.packed_bytes += PackedBytes(count, planes_[p].alphabet);
      if (mode.table == nullptr) return;
      const SymbolCounts& counts = pieces_[i].rows > 0 ? piece.counts : plane_work_[p].costs.counts;
      piece.coded_symbols += count;
      piece.code_length += CodeLength(std::span(counts).first(planes_[p].alphabet), *mode.table);
    });
    piece.lanes_log2 = LanesLog2For(piece.code_length);
    piece.packed = frame_.arena->Take<std::byte>(piece.packed_bytes);
    if (piece.coded_symbols == 0) return;
    piece.scratch = frame_.arena->Take<std::uint16_t>(
        RansScratchWords(piece.code_length, piece.coded_symbols, piece.lanes_log2));
  }

  const FrameContext& frame_;
  const CalibrationArtefact* artefact_;
  std::span<const SymbolPlane> planes_;
  ByteWriter& out_;
  std::span<const SymbolPiece> pieces_;
  std::span<PieceRange> pieces_of_;  // [plane]
  std::span<EncoderPlane> plane_work_;
  std::span<CodedPiece> coded_;
  std::size_t headers_ = 0;  // planes whose headers are written
  SentRansTables sent_;
};

// ---- decoder -----------------------------------------------------------------------------------

struct DecoderPlane {
  std::uint32_t tokens = 0;
  std::uint32_t columns = 0;
  std::uint32_t alphabet = 0;
  RansMode mode;
};

class PieceReader final : public SymbolReader {
 public:
  PieceReader(std::span<const SymbolPiece> pieces, std::span<const DecoderPlane> planes,
              std::span<const std::span<const std::byte>> bytes, bool version1)
      : pieces_(pieces), planes_(planes), bytes_(bytes), version1_(version1) {}

  [[nodiscard]] std::span<const SymbolPiece> pieces() const override { return pieces_; }

  [[nodiscard]] Status Read(std::size_t piece, std::span<std::uint8_t> symbols,
                            Arena& scratch) const override {
    std::size_t done = 0;
    return ReadTo(piece, scratch,
                  [&](std::size_t /*plane*/, std::size_t /*at*/, std::size_t count) {
                    done += count;
                    return symbols.subspan(done - count, count);
                  });
  }

  // place(plane, first symbol, symbols) says where they go.
  template <typename Place>
  [[nodiscard]] Status ReadTo(std::size_t index, Arena& scratch, const Place& place) const {
    ByteReader in(bytes_[index]);
    const auto parts = scratch.Take<MutableRansPart>(pieces_[index].planes);
    std::size_t coded = 0;
    Status status;
    ForEachSegment(pieces_[index], planes_, [&](std::size_t p, std::size_t at, std::size_t count) {
      if (!status) return;
      const DecoderPlane& plane = planes_[p];
      const std::span<std::uint8_t> symbols = place(p, at, count);
      if (plane.mode.table != nullptr) {
        parts[coded++] = {symbols, plane.mode.table};
      } else {
        status = ReadSimple(plane, symbols, in);
      }
    });
    KVSERVE_TRY(std::move(status));
    if (coded > 0) return ReadStream(parts.first(coded), in);
    if (in.remaining() == 0) return {};
    return MakeError(ErrorCode::kCorruptData, "bytes are left over in a piece of symbols");
  }

 private:
  static Status ReadSimple(const DecoderPlane& plane, std::span<std::uint8_t> symbols,
                           ByteReader& in) {
    if (!HasChoice(plane) || plane.mode.byte == kRansConstant) {
      std::fill(symbols.begin(), symbols.end(), plane.mode.symbol);
      return {};
    }
    KVSERVE_ASSIGN(const auto bytes, in.GetBytes(PackedBytes(symbols.size(), plane.alphabet)));
    return UnpackSymbols(bytes, plane.alphabet, symbols);
  }

  Status ReadStream(std::span<const MutableRansPart> parts, ByteReader& in) const {
    KVSERVE_ASSIGN(const auto lanes_log2, in.Get<std::uint8_t>());
    if (lanes_log2 > (version1_ ? kMaxLanesLog2OfVersion1 : kMaxRansLanesLog2)) {
      return MakeError(ErrorCode::kCorruptData, "unknown number of lanes");
    }
    KVSERVE_ASSIGN(const auto bytes, in.GetBytes(in.remaining()));
    const auto layout = version1_ ? RansLayout::kIntervals : RansLayout::kAlias;
    return RansDecode(bytes, lanes_log2, layout, parts);
  }

  std::span<const SymbolPiece> pieces_;
  std::span<const DecoderPlane> planes_;
  std::span<const std::span<const std::byte>> bytes_;  // [piece]
  bool version1_;
};

// Where each piece's bytes are; they end where `in` ends.
Result<std::span<const std::span<const std::byte>>> ReadPieceBytes(std::size_t pieces, Arena& arena,
                                                                   ByteReader& in) {
  const auto lengths = arena.Take<std::uint64_t>(pieces);
  for (auto& length : lengths) {
    KVSERVE_ASSIGN(length, in.GetVarint());
  }
  const auto bytes = arena.Take<std::span<const std::byte>>(pieces);
  for (std::size_t i = 0; i < pieces; ++i) {
    if (lengths[i] > in.remaining()) {
      return MakeError(ErrorCode::kCorruptData, "a piece of symbols exceeds its section");
    }
    KVSERVE_ASSIGN(bytes[i], in.GetBytes(static_cast<std::size_t>(lengths[i])));
  }
  if (in.remaining() > 0) {
    return MakeError(ErrorCode::kCorruptData, "bytes are left over after the pieces of symbols");
  }
  return bytes;
}

// ---- stage -------------------------------------------------------------------------------------

class Rans : public Codec {
 public:
  explicit Rans(const Settings& settings)
      : version1_(settings.version() == 1), calibrated_(settings.integer(kTables) == 1) {}

  Status Encode(const FrameContext& frame, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    KVSERVE_ASSIGN(SymbolWriter* const writer, Begin(frame, planes, out));
    return WriteAll(frame, planes.size(), *writer);
  }

  [[nodiscard]] Result<SymbolWriter*> Begin(const FrameContext& frame,
                                            std::span<const SymbolPlane> planes,
                                            ByteWriter& out) const override {
    if (version1_) return MakeError(ErrorCode::kUnsupported, "rans version 1 is only decoded");
    return frame.arena->New<PieceWriter>(frame, artefact(frame), planes, out);
  }

  Status Decode(const FrameContext& frame, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    KVSERVE_ASSIGN(const PieceReader* reader, OpenPieces(frame, in, planes));
    return frame.workers->Run(reader->pieces().size(), [&](std::size_t i, Arena& scratch) {
      return reader->ReadTo(i, scratch, [&](std::size_t p, std::size_t at, std::size_t count) {
        return planes[p].symbols.subspan(at, count);
      });
    });
  }

  [[nodiscard]] Result<const SymbolReader*> Open(
      const FrameContext& frame, ByteReader& in,
      std::span<const SymbolPlane> planes) const override {
    KVSERVE_ASSIGN(const PieceReader* reader, OpenPieces(frame, in, planes));
    return reader;
  }

  [[nodiscard]] std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    // A coded plane is estimated to be smaller than packed; 0.1 bit per symbol covers the estimate.
    constexpr std::uint64_t kPerPiece = 10 + 8 + 1 + (std::uint64_t{4} << kMaxRansLanesLog2);
    std::uint64_t bytes = kPerPiece * CountPieces(planes);
    for (const auto& plane : planes) {
      bytes += 2 + PackedBytes(plane.count(), plane.alphabet) + plane.count() / 80;
    }
    return bytes;
  }

  [[nodiscard]] bool needs_artefact() const override { return calibrated_; }
  [[nodiscard]] ScaleSource scale_source(PlaneKind /*kind*/) const override {
    return calibrated_ ? ScaleSource::kCalibrated : ScaleSource::kFrame;
  }

 private:
  [[nodiscard]] const CalibrationArtefact* artefact(const FrameContext& frame) const {
    return calibrated_ ? frame.artefact : nullptr;
  }

  Result<const PieceReader*> OpenPieces(const FrameContext& frame, ByteReader& in,
                                        std::span<const SymbolPlane> planes) const {
    Arena& arena = *frame.arena;
    const auto headers = arena.Take<DecoderPlane>(planes.size());
    SentRansTables sent;
    for (std::size_t p = 0; p < planes.size(); ++p) {
      const SymbolPlane& plane = planes[p];
      headers[p] = {plane.tokens, plane.columns, plane.alphabet, {}};
      if (!HasChoice(plane)) continue;
      const auto classes = ClassesOf(artefact(frame), plane.alphabet);
      KVSERVE_ASSIGN(headers[p].mode, ReadRansMode(plane.alphabet, classes, sent, arena, in));
    }
    if (version1_ && !planes.empty()) {
      const auto bytes = arena.Take<std::span<const std::byte>>(1);
      KVSERVE_ASSIGN(bytes[0], in.GetBytes(in.remaining()));
      const auto whole = arena.Take<SymbolPiece>(1);
      whole[0] = {0, planes.size(), 0, 0};
      return arena.New<PieceReader>(whole, headers, bytes, true);
    }
    const auto pieces = CutIntoPieces(planes, arena);
    KVSERVE_ASSIGN(const auto bytes, ReadPieceBytes(pieces.size(), arena, in));
    return arena.New<PieceReader>(pieces, headers, bytes, false);
  }

  bool version1_;
  bool calibrated_;
};

}  // namespace

const StageEntry& RansStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_codec = [](const Settings& settings) -> Result<std::unique_ptr<Codec>> {
        return std::make_unique<Rans>(settings);
      }};
  return entry;
}

}  // namespace kvserve
