// Decodes by many threads, piece by piece of the codec's stream, with the values of the reference
// executor.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvserve/codec.h"
#include "pipeline/chain.h"
#include "pipeline/frame_plan.h"
#include "pipeline/piece_ahead.h"
#include "pipeline/piece_items.h"
#include "pipeline/reference_executor.h"
#include "pipeline/stage_clock.h"
#include "pipeline/token_tiles.h"

namespace kvserve {

// A codec that decodes in pieces: every piece is read, dequantized, transformed back and stored
// while it is in the cache; planes of the last pieces are shared out to several threads. Stages
// that need whole planes wait until all pieces of a frame are read, if pieces cut planes; then, and
// after a codec that decodes only whole frames, planes run in parallel. Stages that work by tiles
// of tokens take these in parallel, each through all planes (token_tiles.h); a chain with feedback
// that does not is decoded in sequence by the reference executor. Keeps its memory from frame to
// frame, so that frames of shapes that it has seen take none from the system. One thread at a time.
class FastDecoder {
 public:
  // As DecodePlanes, with the same values, and errors of the same codes. `frame` has an arena,
  // which is reset, and workers. `output` is called once the sections are known to agree with the
  // shapes as far as the codec can tell without decoding symbols. Scratch memory: per thread the
  // symbols of three pieces and the floats of a plane; where pieces have to wait, one byte per
  // symbol of the frame. It is address space until bytes that decode have filled it.
  [[nodiscard]] Status Decode(const Chain& chain, const SectionBytes& sections,
                              const FrameContext& frame, const KvView& shapes,
                              const OutputPlanes& output, StageSeconds* seconds = nullptr);

 private:
  Status Run(const Chain& chain, const SectionBytes& sections, const FrameContext& frame,
             const KvView& shapes, const OutputPlanes& output);
  Status DecodeTiles(const Chain& chain, const SectionBytes& sections, const FrameContext& frame,
                     const OutputPlanes& output);
  Status ReadClasses(const Chain& chain, const SectionBytes& sections, const FrameContext& frame);
  Status OpenSymbols(const Chain& chain, const SectionBytes& sections, const FrameContext& frame,
                     const SymbolReader*& reader);
  Status DecodeSymbols(const Chain& chain, const SectionBytes& sections, const FrameContext& frame);
  Status GatherPieces(const Chain& chain, const SymbolReader& reader, const FrameContext& frame);
  void DividePieces(const SymbolReader& reader, const FrameContext& frame);
  Status DecodeItemPlanes(const Chain& chain, const SymbolReader* reader, const FrameContext& frame,
                          const DecodeItem& item, Arena& scratch);
  Status FinishItem(const Chain& chain, const SymbolReader* reader, const FrameContext& frame,
                    const DecodeItem& item, std::span<std::uint8_t> symbols, Arena& scratch);
  Status ReadPiece(const Chain& chain, const SymbolReader& reader, std::size_t piece,
                   std::span<std::uint8_t> symbols, Arena& scratch);
  Status DecodePlane(const Chain& chain, const PlaneContext& context, std::size_t p);
  Status DecodeWhole(const Chain& chain, const PlaneContext& context, std::size_t p,
                     ByteReader& side);

  std::vector<OrderedPlane<std::byte>> planes_;
  FramePlan plan_;
  std::vector<DecodeItem> items_;
  std::span<PieceAhead> ahead_;  // [piece]; those that are not divided hold nothing
  std::vector<std::span<const std::byte>> side_;  // [plane]
  bool by_rows_ = false;
  TileDecoder tiles_;
  StageClock clock_;
};

}  // namespace kvserve
