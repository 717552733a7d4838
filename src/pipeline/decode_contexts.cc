// Headers first, then the pieces in parallel; within a piece plane after plane, since the energies
// of one are contexts of the next.
#include <algorithm>
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

struct DecoderPlane {
  ContextPlane found;
  std::int32_t shift = 0;
  bool packed = false;
};

struct CodedPlane {
  std::size_t plane = 0;
  RowRange rows;
};

class FrameReader {
 public:
  FrameReader(const FrameContext& frame, const ContextModel& model, bool energy,
              std::span<SymbolPlane> planes)
      : frame_(frame),
        model_(model),
        energy_(energy),
        planes_(planes),
        cut_(planes),
        headers_(frame.arena->Take<DecoderPlane>(planes.size())),
        bytes_(frame.arena->Take<std::span<const std::byte>>(cut_.pieces())) {}

  Status Decode(ByteReader& in) {
    for (const SymbolPlane& plane : planes_) {
      if (!HasChoice(plane)) std::fill(plane.symbols.begin(), plane.symbols.end(), 0);
    }
    if (bytes_.empty()) return {};
    KVSERVE_TRY(ReadHeader(in));
    KVSERVE_TRY(ReadPieces(in));
    return frame_.workers->Run(
        bytes_.size(), [&](std::size_t i, Arena& scratch) { return DecodePiece(i, scratch); });
  }

 private:
  Status ReadHeader(ByteReader& in) {
    KVSERVE_ASSIGN(const auto point, in.Get<std::uint8_t>());
    if (point >= model_.points()) {
      return MakeError(ErrorCode::kCorruptData, "unknown operating point");
    }
    const auto found = frame_.arena->Take<ContextPlane>(planes_.size());
    FindContexts(model_, point, planes_, found);
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      headers_[p] = {.found = found[p]};
      if (!HasChoice(planes_[p])) continue;
      KVSERVE_ASSIGN(const auto mode, in.Get<std::uint8_t>());
      headers_[p].packed = mode == kPackedContexts;
      if (headers_[p].packed) continue;
      headers_[p].shift = static_cast<std::int32_t>(mode) - kNoContextShift;
      if (std::abs(headers_[p].shift) > kMostContextShift) {
        return MakeError(ErrorCode::kCorruptData, "unknown shift of a plane's tables");
      }
    }
    return {};
  }

  Status ReadPieces(ByteReader& in) {
    const auto lengths = frame_.arena->Take<std::uint64_t>(bytes_.size());
    for (auto& length : lengths) {
      KVSERVE_ASSIGN(length, in.GetVarint());
    }
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (lengths[i] > in.remaining()) {
        return MakeError(ErrorCode::kCorruptData, "a piece of symbols exceeds its section");
      }
      KVSERVE_ASSIGN(bytes_[i], in.GetBytes(static_cast<std::size_t>(lengths[i])));
    }
    if (in.remaining() == 0) return {};
    return MakeError(ErrorCode::kCorruptData, "bytes are left over after the pieces of symbols");
  }

  Status DecodePiece(std::size_t i, Arena& scratch) const {
    ByteReader in(bytes_[i]);
    const auto coded = scratch.Take<CodedPlane>(planes_.size());
    std::size_t count = 0;
    Status status;
    cut_.ForEachPlane(i, planes_, [&](std::size_t p, RowRange rows) {
      if (!headers_[p].packed) {
        coded[count++] = {p, rows};
      } else if (status) {
        status = Unpack(planes_[p], rows, in);
      }
    });
    KVSERVE_TRY(std::move(status));
    if (count > 0) return DecodeStream(i, coded.first(count), in, scratch);
    if (in.remaining() == 0) return {};
    return MakeError(ErrorCode::kCorruptData, "bytes are left over in a piece of symbols");
  }

  static Status Unpack(const SymbolPlane& plane, RowRange rows, ByteReader& in) {
    const auto symbols = SymbolsOf(plane, rows);
    KVSERVE_ASSIGN(const auto bytes, in.GetBytes(PackedBytes(symbols.size(), plane.alphabet)));
    return UnpackSymbols(bytes, plane.alphabet, symbols);
  }

  Status DecodeStream(std::size_t i, std::span<const CodedPlane> coded, ByteReader& in,
                      Arena& scratch) const {
    KVSERVE_ASSIGN(const auto escapes, in.GetVarint());
    if (escapes > in.remaining()) {
      return MakeError(ErrorCode::kCorruptData, "escaped symbols exceed their piece");
    }
    KVSERVE_ASSIGN(const auto escaped, in.GetBytes(static_cast<std::size_t>(escapes)));
    KVSERVE_ASSIGN(const auto lanes_log2, in.Get<std::uint8_t>());
    if (lanes_log2 > kMaxRansLanesLog2) {
      return MakeError(ErrorCode::kCorruptData, "unknown number of lanes");
    }
    KVSERVE_ASSIGN(const auto stream, in.GetBytes(in.remaining()));
    ContextDecoder decoder(model_.tables(), lanes_log2, stream, escaped);
    const auto rows = RowsOf(i, scratch);
    std::size_t longest = 0;
    for (const auto& [p, range] : coded) {
      longest = std::max(longest, range.size() * planes_[p].columns);
    }
    const auto indices = scratch.Take<std::uint8_t>(longest);
    std::size_t next = 0;
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      if (!HasChoice(planes_[p])) continue;
      const RowRange range = cut_.Rows(i, planes_[p]);
      if (next < coded.size() && coded[next].plane == p) {
        KVSERVE_TRY(DecodePlane(rows, coded[next++], indices, decoder));
      }
      for (std::size_t row = range.begin; energy_ && row < range.end; ++row) rows[p].SetEnergy(row);
    }
    return decoder.Finish();
  }

  [[nodiscard]] std::span<CodedRows> RowsOf(std::size_t piece, Arena& scratch) const {
    const auto rows = scratch.Take<CodedRows>(planes_.size());
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      rows[p] = {.plane = &planes_[p], .found = headers_[p].found};
      if (!HasChoice(planes_[p])) continue;
      const RowRange range = cut_.Rows(piece, planes_[p]);
      rows[p].first = range.begin;
      rows[p].energies = scratch.Take<std::int32_t>(range.size());
    }
    return rows;
  }

  Status DecodePlane(std::span<const CodedRows> rows, const CodedPlane& coded,
                     std::span<std::uint8_t> indices, ContextDecoder& decoder) const {
    const SymbolPlane& plane = planes_[coded.plane];
    const auto symbols = SymbolsOf(plane, coded.rows);
    for (std::size_t row = coded.rows.begin; row < coded.rows.end; ++row) {
      const std::int32_t shift = RowShift(rows, coded.plane, row, energy_);
      rows[coded.plane].FillIndices(
          shift + headers_[coded.plane].shift,
          indices.subspan((row - coded.rows.begin) * plane.columns, plane.columns));
    }
    KVSERVE_TRY(
        decoder.Decode({symbols, indices.first(symbols.size()), ContextOffset(plane.alphabet)}));
    if (AllBelow(symbols, plane.alphabet)) return {};
    return MakeError(ErrorCode::kCorruptData, "a symbol is outside of its alphabet");
  }

  const FrameContext& frame_;
  const ContextModel& model_;
  bool energy_;
  std::span<SymbolPlane> planes_;
  TokenPieces cut_;
  std::span<DecoderPlane> headers_;
  std::span<std::span<const std::byte>> bytes_;  // [piece]
};

}  // namespace

Status DecodeContexts(const FrameContext& frame, const ContextModel& model, bool energy,
                      ByteReader& in, std::span<SymbolPlane> planes) {
  return FrameReader(frame, model, energy, planes).Decode(in);
}

}  // namespace kvserve
