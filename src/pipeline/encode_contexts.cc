// Planes are prepared in parallel: energies of all, then what follows from them. A shift is chosen
// by the code length of a sample; the exact length is taken then, so that a plane which does not
// shrink is packed, and the memory of a stream is known before it is coded.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/try.h"
#include "base/workers.h"
#include "kernels/bitpack/bitpack.h"
#include "kernels/rans/context_coder.h"
#include "kernels/rans/context_rows.h"
#include "pipeline/code_contexts.h"
#include "pipeline/token_pieces.h"

namespace kvserve {
namespace {

constexpr std::int32_t kMostKnownShift = 8;  // that is tried where columns are known

// A state takes 4 bytes, of which about 3 are beyond the entropy: at most 0.6 % of a stream.
unsigned LanesLog2For(const ContextLength& length) {
  constexpr std::uint64_t kBytesPerLane = 512;
  const std::uint64_t lanes = (length.code_length >> (3 + kContextLengthBits)) / kBytesPerLane;
  const auto log2 = static_cast<unsigned>(std::bit_width(std::max<std::uint64_t>(lanes, 1)) - 1);
  return std::min(log2, kMaxRansLanesLog2);
}

struct EncoderPlane {
  std::span<std::int16_t> shifts;    // [row] by class and energy
  std::span<ContextLength> lengths;  // [piece]
  std::uint64_t cost = 0;            // of a sample
  std::int32_t shift = 0;            // of the plane
  bool packed = false;
};

struct CodedPiece {
  ContextLength length;
  std::uint64_t coded_symbols = 0;
  unsigned lanes_log2 = 0;
  std::span<std::byte> packed;
  std::span<std::uint8_t> escaped;
  std::span<std::uint16_t> words;
  std::span<const std::byte> stream;
};

// The work of one frame, in its arena.
class FrameCoder {
 public:
  FrameCoder(const FrameContext& frame, const ContextModel& model, const ContextChoices& choices,
             std::span<const SymbolPlane> planes)
      : frame_(frame),
        model_(model),
        planes_(planes),
        choices_(choices),
        cut_(planes),
        found_(frame.arena->Take<ContextPlane>(planes.size())),
        rows_(frame.arena->Take<CodedRows>(planes.size())),
        work_(frame.arena->Take<EncoderPlane>(planes.size())),
        pieces_(frame.arena->Take<CodedPiece>(cut_.pieces())) {
    Arena& arena = *frame.arena;
    for (std::size_t p = 0; p < planes.size(); ++p) {
      const std::size_t tokens = planes[p].tokens;
      work_[p] = {.shifts = arena.Take<std::int16_t>(tokens),
                  .lengths = arena.Take<ContextLength>(pieces_.size())};
      rows_[p] = {.plane = &planes[p], .energies = arena.Take<std::int32_t>(tokens)};
    }
    std::fill(pieces_.begin(), pieces_.end(), CodedPiece{});
  }

  Status Encode(ByteWriter& out) {
    KVSERVE_TRY(ForEachPlane([&](std::size_t p, Arena& /*scratch*/) { return CheckPlane(p); }));
    std::size_t point = choices_.point;
    if (point == model_.points()) {
      KVSERVE_ASSIGN(point, ChoosePoint());
    }
    KVSERVE_TRY(SetPoint(point));
    KVSERVE_TRY(ForEachPlane([&](std::size_t p, Arena& scratch) {
      FillShifts(p);
      ChooseShift(p, kSample, scratch);
      MeasurePlane(p, scratch);
      return Status();
    }));
    WriteHeader(point, out);
    for (std::size_t i = 0; i < pieces_.size(); ++i) PreparePiece(i);
    KVSERVE_TRY(frame_.workers->Run(pieces_.size(), [&](std::size_t i, Arena& scratch) {
      CodePiece(i, scratch);
      return Status();
    }));
    WritePieces(out);
    return {};
  }

 private:
  // Symbols that a plane's shift is chosen by, and those that all planes' point is.
  static constexpr std::uint64_t kSample = 8192;
  static constexpr std::uint64_t kPointSample = 1024;

  template <typename Work>
  Status ForEachPlane(const Work& work) {
    return frame_.workers->Run(planes_.size(), [&](std::size_t p, Arena& scratch) -> Status {
      if (!HasChoice(planes_[p])) return {};
      return work(p, scratch);
    });
  }

  Status CheckPlane(std::size_t p) const {
    if (AllBelow(planes_[p].symbols, planes_[p].alphabet)) return {};
    return MakeError(ErrorCode::kInternal, "a symbol is outside of its alphabet");
  }

  Status SetPoint(std::size_t point) {
    FindContexts(model_, point, planes_, found_);
    for (std::size_t p = 0; p < planes_.size(); ++p) rows_[p].found = found_[p];
    return ForEachPlane([&](std::size_t p, Arena& /*scratch*/) {
      for (std::size_t row = 0; choices_.energy && row < planes_[p].tokens; ++row) {
        rows_[p].SetEnergy(row);
      }
      return Status();
    });
  }

  Result<std::size_t> ChoosePoint() {
    std::size_t best = 0;
    std::uint64_t least = UINT64_MAX;
    for (std::size_t point = 0; model_.points() > 1 && point < model_.points(); ++point) {
      KVSERVE_TRY(SetPoint(point));
      KVSERVE_TRY(ForEachPlane([&](std::size_t p, Arena& scratch) {
        FillShifts(p);
        ChooseShift(p, kPointSample, scratch);
        return Status();
      }));
      std::uint64_t cost = 0;
      for (const EncoderPlane& plane : work_) cost += plane.cost;
      if (cost < least) best = point;
      least = std::min(least, cost);
    }
    return best;
  }

  void FillShifts(std::size_t p) {
    for (std::size_t row = 0; row < planes_[p].tokens; ++row) {
      work_[p].shifts[row] = static_cast<std::int16_t>(RowShift(rows_, p, row, choices_.energy));
    }
  }

  // Of some rows of the plane, with it shifted.
  [[nodiscard]] ContextLength Measure(std::size_t p, RowRange rows, std::size_t step,
                                      std::int32_t shift, std::span<std::uint8_t> indices) const {
    ContextLength sum;
    for (std::size_t row = rows.begin; row < rows.end; row += step) {
      rows_[p].FillIndices(work_[p].shifts[row] + shift, indices);
      const ContextLength length = MeasureContexts(
          model_.tables(),
          {SymbolsOf(planes_[p], {row, row + 1}), indices, ContextOffset(planes_[p].alphabet)});
      sum.code_length += length.code_length;
      sum.escapes += length.escapes;
    }
    return sum;
  }

  // Downhill from none: the code length has one minimum, but for noise.
  void ChooseShift(std::size_t p, std::uint64_t sample, Arena& scratch) {
    const SymbolPlane& plane = planes_[p];
    const std::size_t step = std::max<std::uint64_t>(1, plane.count() / sample);
    const auto indices = scratch.Take<std::uint8_t>(plane.columns);
    const auto cost = [&](std::int32_t shift) {
      return Measure(p, {0, plane.tokens}, step, shift, indices).code_length;
    };
    EncoderPlane& work = work_[p];
    work.shift = 0;
    work.cost = cost(0);
    if (!choices_.shift) return;
    const std::int32_t most =
        rows_[p].found.contexts == nullptr ? kMostContextShift : kMostKnownShift;
    for (const std::int32_t direction : {1, -1}) {
      while (std::abs(work.shift + direction) <= most) {
        const std::uint64_t next = cost(work.shift + direction);
        if (next >= work.cost) break;
        work.shift += direction;
        work.cost = next;
      }
      if (work.shift != 0) return;
    }
  }

  void MeasurePlane(std::size_t p, Arena& scratch) {
    const SymbolPlane& plane = planes_[p];
    EncoderPlane& work = work_[p];
    const auto indices = scratch.Take<std::uint8_t>(plane.columns);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      work.lengths[i] = Measure(p, cut_.Rows(i, plane), 1, work.shift, indices);
      length += work.lengths[i].code_length;
    }
    work.packed = length >> (3 + kContextLengthBits) >= PackedBytes(plane.count(), plane.alphabet);
  }

  void WriteHeader(std::size_t point, ByteWriter& out) const {
    if (pieces_.empty()) return;
    out.Put(static_cast<std::uint8_t>(point));
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      if (!HasChoice(planes_[p])) continue;
      out.Put(work_[p].packed ? kPackedContexts
                              : static_cast<std::uint8_t>(kNoContextShift + work_[p].shift));
    }
  }

  void PreparePiece(std::size_t i) {
    CodedPiece& piece = pieces_[i];
    std::uint64_t packed = 0;
    cut_.ForEachPlane(i, planes_, [&](std::size_t p, RowRange rows) {
      const std::uint64_t symbols = rows.size() * planes_[p].columns;
      if (work_[p].packed) {
        packed += PackedBytes(symbols, planes_[p].alphabet);
        return;
      }
      piece.coded_symbols += symbols;
      piece.length.code_length += work_[p].lengths[i].code_length;
      piece.length.escapes += work_[p].lengths[i].escapes;
    });
    Arena& arena = *frame_.arena;
    piece.packed = arena.Take<std::byte>(packed);
    piece.escaped = arena.Take<std::uint8_t>(piece.length.escapes);
    piece.lanes_log2 = LanesLog2For(piece.length);
    piece.words = arena.Take<std::uint16_t>(
        ContextScratchWords(piece.length, piece.coded_symbols, piece.lanes_log2));
  }

  void CodePiece(std::size_t i, Arena& scratch) {
    CodedPiece& piece = pieces_[i];
    std::size_t packed = 0;
    std::size_t longest = 0;
    cut_.ForEachPlane(i, planes_, [&](std::size_t p, RowRange rows) {
      const auto symbols = SymbolsOf(planes_[p], rows);
      longest = std::max(longest, symbols.size());
      if (!work_[p].packed) return;
      const std::uint32_t alphabet = planes_[p].alphabet;
      const auto bytes = static_cast<std::size_t>(PackedBytes(symbols.size(), alphabet));
      PackSymbols(symbols, alphabet, piece.packed.subspan(packed, bytes));
      packed += bytes;
    });
    ContextEncoder encoder(model_.tables(), piece.lanes_log2, piece.words, piece.escaped);
    const auto indices = scratch.Take<std::uint8_t>(longest);
    for (std::size_t p = planes_.size(); p-- > 0;) {
      const SymbolPlane& plane = planes_[p];
      if (!HasChoice(plane) || work_[p].packed) continue;
      const RowRange rows = cut_.Rows(i, plane);
      for (std::size_t row = rows.begin; row < rows.end; ++row) {
        rows_[p].FillIndices(work_[p].shifts[row] + work_[p].shift,
                             indices.subspan((row - rows.begin) * plane.columns, plane.columns));
      }
      const auto symbols = SymbolsOf(plane, rows);
      encoder.Encode({symbols, indices.first(symbols.size()), ContextOffset(plane.alphabet)});
    }
    piece.stream = encoder.Finish();
  }

  void WritePieces(ByteWriter& out) const {
    const auto escapes_bytes = [](std::uint64_t value) {
      return static_cast<std::size_t>(std::bit_width(value | 1) + 6) / 7;
    };
    for (const CodedPiece& piece : pieces_) {
      std::size_t bytes = piece.packed.size();
      if (piece.coded_symbols > 0) {
        bytes += escapes_bytes(piece.length.escapes) + piece.escaped.size() + 1;
        bytes += piece.stream.size();
      }
      out.PutVarint(bytes);
    }
    for (const CodedPiece& piece : pieces_) {
      out.PutBytes(piece.packed);
      if (piece.coded_symbols == 0) continue;
      out.PutVarint(piece.length.escapes);
      out.PutBytes(std::as_bytes(piece.escaped));
      out.Put(static_cast<std::uint8_t>(piece.lanes_log2));
      out.PutBytes(piece.stream);
    }
  }

  const FrameContext& frame_;
  const ContextModel& model_;
  std::span<const SymbolPlane> planes_;
  ContextChoices choices_;
  TokenPieces cut_;
  std::span<ContextPlane> found_;
  std::span<CodedRows> rows_;
  std::span<EncoderPlane> work_;
  std::span<CodedPiece> pieces_;
};

}  // namespace

Status EncodeContexts(const FrameContext& frame, const ContextModel& model,
                      const ContextChoices& choices, std::span<const SymbolPlane> planes,
                      ByteWriter& out) {
  return FrameCoder(frame, model, choices, planes).Encode(out);
}

std::uint64_t MaxContextBytes(std::span<const SymbolPlane> planes) {
  // A coded plane is measured to be smaller than packed; 0.1 bit per symbol covers the coder.
  constexpr std::uint64_t kPerPiece = 10 + 10 + 1 + (std::uint64_t{4} << kMaxRansLanesLog2);
  std::uint64_t bytes = 1 + kPerPiece * TokenPieces(planes).pieces();
  for (const SymbolPlane& plane : planes) {
    bytes += 2 + PackedBytes(plane.count(), plane.alphabet) + plane.count() / 80;
  }
  // Each piece packs a plane apart.
  return bytes + TokenPieces(planes).pieces() * planes.size();
}

}  // namespace kvserve
