// Encodes by many threads in tiles, with the bytes of the reference executor.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "base/byte_io.h"
#include "kvserve/codec.h"
#include "pipeline/chain.h"
#include "pipeline/encode_items.h"
#include "pipeline/frame_plan.h"
#include "pipeline/plane_gates.h"
#include "pipeline/reference_executor.h"
#include "pipeline/side_section.h"
#include "pipeline/stage_clock.h"
#include "pipeline/token_tiles.h"

namespace kvserve {

// Planes in parallel: where the stages work by rows, tile by tile from the cache's dtype to symbols
// (plane_tiles.h), otherwise stage by stage. A codec that encodes in pieces codes each of them once
// the planes up to it are there, beside later planes; any other follows behind all planes. Stages
// that work by tiles of tokens take these in parallel, each through all planes (token_tiles.h); a
// chain with feedback that does not is coded in sequence by the reference executor. Keeps its
// memory from frame to frame, so that frames of shapes that it has seen take none from the system.
// One thread at a time.
class FastEncoder {
 public:
  // As EncodePlanes, with the same bytes and errors (but that of a codec which refuses to begin, as
  // for a version that is only decoded, comes first). `frame` has an arena, which is reset, and
  // workers. Scratch memory: one byte per symbol, and per thread the floats of a plane.
  [[nodiscard]] Status Encode(const Chain& chain, const ConstKvView& view,
                              const FrameContext& frame, CodedSections& out,
                              StageSeconds* seconds = nullptr, EncoderMemory* memory = nullptr);

 private:
  Status Run(const Chain& chain, const ConstKvView& view, const FrameContext& frame,
             CodedSections& out, EncoderMemory* memory);
  Status WeighTokens(const Chain& chain, const ConstKvView& view, const FrameContext& frame,
                     EncoderMemory* memory);
  Status EncodePlanesByItems(const Chain& chain, const FrameContext& frame, SymbolWriter* writer);
  Status EncodeTiles(const Chain& chain, const ConstKvView& view, const FrameContext& frame);
  Status EncodePlane(const Chain& chain, const PlaneContext& context, std::size_t p);
  Status EncodeWhole(const Chain& chain, const PlaneContext& context, std::size_t p);
  Status EncodePlaneAt(const Chain& chain, const FrameContext& frame, std::size_t p,
                       SymbolWriter* writer, Arena& scratch);
  Status CodePiece(SymbolWriter& writer, std::size_t index, Arena& scratch);
  Status BeginSymbols(const Chain& chain, const FrameContext& frame, ByteWriter& symbols,
                      SymbolWriter*& writer);
  Status WriteClasses(const Chain& chain, const FrameContext& frame, CodedSections& out);
  Status FinishSymbols(const Chain& chain, const FrameContext& frame, SymbolWriter* writer,
                       ByteWriter& symbols);

  std::vector<OrderedPlane<const std::byte>> planes_;
  FramePlan plan_;
  std::vector<StageSides> side_;             // [plane]
  std::vector<std::vector<float>> weights_;  // [plane][token]; empty without selectors
  std::vector<EncodeItem> items_;
  PlaneGates counted_;
  std::mutex deciding_;
  std::size_t decided_ = 0;  // pieces, under the mutex
  bool by_rows_ = false;
  TileEncoder tiles_;
  StageClock clock_;
};

}  // namespace kvserve
