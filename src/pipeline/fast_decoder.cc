#include "pipeline/fast_decoder.h"

#include <algorithm>
#include <memory>

#include "base/byte_io.h"
#include "base/try.h"
#include "pipeline/dropped_tokens.h"
#include "pipeline/executor_faults.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_tiles.h"
#include "pipeline/side_section.h"

namespace kvserve {
Status FastDecoder::Decode(const Chain& chain, const SectionBytes& sections,
                           const FrameContext& frame, const KvView& shapes,
                           const OutputPlanes& output, StageSeconds* seconds) {
  frame.arena->Reset();
  if (chain.needs_feedback() && !WorksByTiles(chain)) {
    return DecodePlanes(chain, sections, frame, shapes, output, seconds);
  }
  clock_.Start(seconds != nullptr);
  Status status = Run(chain, sections, frame, shapes, output);
  if (seconds != nullptr) clock_.Report(chain, *seconds);
  return status;
}

Status FastDecoder::Run(const Chain& chain, const SectionBytes& sections, const FrameContext& frame,
                        const KvView& shapes, const OutputPlanes& output) {
  CodingOrder(shapes, planes_);
  KVSERVE_TRY(PlanFrame<std::byte>(chain, planes_, frame, *frame.arena, plan_));
  by_rows_ = WorksByRows(chain);
  const SymbolReader* reader = nullptr;
  KVSERVE_TRY(ReadClasses(chain, sections, frame));
  if (WorksByTiles(chain)) return DecodeTiles(chain, sections, frame, output);
  KVSERVE_TRY(OpenSymbols(chain, sections, frame, reader));
  KVSERVE_TRY(SplitSide(sections.side, planes_.size(), side_));
  KVSERVE_ASSIGN(const KvView* const out, output());
  CodingOrder(*out, planes_);
  const bool cut =
      std::any_of(items_.begin(), items_.end(), [](const DecodeItem& item) { return item.cut; });
  if (reader != nullptr && cut && !by_rows_) {
    KVSERVE_TRY(GatherPieces(chain, *reader, frame));
    ItemsOfPlanes(plan_.symbols, items_);
    reader = nullptr;
  }
  if (reader != nullptr && frame.workers->threads() > 1) DividePieces(*reader, frame);
  return frame.workers->Run(items_.size(), [&](std::size_t i, Arena& scratch) {
    return DecodeItemPlanes(chain, reader, frame, items_[i], scratch);
  });
}

Status FastDecoder::DecodeTiles(const Chain& chain, const SectionBytes& sections,
                                const FrameContext& frame, const OutputPlanes& output) {
  {
    const SharedStageTimer timer(clock_, ClockSlot::kCodec, *frame.workers);
    KVSERVE_TRY(DecodeSymbols(chain, sections, frame));
  }
  KVSERVE_TRY(SplitSide(sections.side, planes_.size(), side_));
  KVSERVE_ASSIGN(const KvView* const out, output());
  CodingOrder(*out, planes_);
  tiles_.Begin(chain, frame, planes_, plan_, clock_);
  KVSERVE_TRY(tiles_.Open(side_));
  return frame.workers->Run(tiles_.count(), [&](std::size_t tile, Arena& scratch) {
    return tiles_.Decode(tile, scratch);
  });
}

Status FastDecoder::ReadClasses(const Chain& chain, const SectionBytes& sections,
                                const FrameContext& frame) {
  ByteReader classes(sections.classes);
  const auto& quantizer = chain.quantizer();
  const SharedStageTimer timer(clock_, ClockSlot::kQuantizer, *frame.workers);
  KVSERVE_TRY(Named(quantizer.stage->ReadClasses(frame, plan_.symbols, classes), *quantizer.info));
  KVSERVE_TRY(CheckSectionRead(classes, "classes"));
  if (frame.dropped != nullptr) frame.dropped->Collect(frame.tokens, planes_, plan_.symbols);
  return LayOutSymbols(plan_);
}

// The symbols themselves only if they lie in runs or the codec has no pieces.
Status FastDecoder::OpenSymbols(const Chain& chain, const SectionBytes& sections,
                                const FrameContext& frame, const SymbolReader*& reader) {
  const auto& codec = chain.codec();
  const SharedStageTimer timer(clock_, ClockSlot::kCodec, *frame.workers);
  if (!plan_.runs.empty()) return DecodeSymbols(chain, sections, frame);
  ByteReader symbols(sections.symbols);
  auto opened = codec.stage->Open(frame, symbols, plan_.symbols);
  if (!opened) return Named(tl::unexpected(std::move(opened).error()), *codec.info);
  reader = *opened;
  if (reader != nullptr) {
    KVSERVE_TRY(CheckSectionRead(symbols, "symbols"));
    return Named(ItemsOfPieces(reader->pieces(), plan_.symbols, items_), *codec.info);
  }
  return DecodeSymbols(chain, sections, frame);
}

Status FastDecoder::DecodeSymbols(const Chain& chain, const SectionBytes& sections,
                                  const FrameContext& frame) {
  const auto& codec = chain.codec();
  PlaceSymbols(frame.arena->Take<std::uint8_t>(plan_.symbol_count), plan_);
  ByteReader whole(sections.symbols);
  KVSERVE_TRY(Named(codec.stage->Decode(frame, whole, plan_.coded()), *codec.info));
  ItemsOfPlanes(plan_.symbols, items_);
  return CheckSectionRead(whole, "symbols");
}

Status FastDecoder::GatherPieces(const Chain& chain, const SymbolReader& reader,
                                 const FrameContext& frame) {
  const auto storage = frame.arena->Take<std::uint8_t>(plan_.symbol_count);
  PlaceSymbols(storage, plan_);
  return frame.workers->Run(items_.size(), [&](std::size_t i, Arena& scratch) -> Status {
    const DecodeItem& item = items_[i];
    if (item.piece == DecodeItem::kNoPiece) return {};
    const std::size_t begin = plan_.offsets[item.first_plane] +
                              std::size_t{item.first_row} * plan_.symbols[item.first_plane].columns;
    return ReadPiece(chain, reader, item.piece, storage.subspan(begin, item.symbols), scratch);
  });
}

Status FastDecoder::ReadPiece(const Chain& chain, const SymbolReader& reader, std::size_t piece,
                              std::span<std::uint8_t> symbols, Arena& scratch) {
  const StageTimer timer(clock_, ClockSlot::kCodec);
  return Named(reader.Read(piece, symbols, scratch), *chain.codec().info);
}

void FastDecoder::DividePieces(const SymbolReader& reader, const FrameContext& frame) {
  DivideLastPieces(frame.workers->threads(), plan_.symbols, items_);
  ahead_ = frame.arena->Take<PieceAhead>(reader.pieces().size());
  std::uninitialized_default_construct(ahead_.begin(), ahead_.end());
  for (const DecodeItem& item : items_) {
    if (item.step != DecodeItem::Step::kRead) continue;
    ahead_[item.piece].symbols = frame.arena->Take<std::uint8_t>(item.symbols);
  }
}

// Without a reader the symbols are there already.
Status FastDecoder::DecodeItemPlanes(const Chain& chain, const SymbolReader* reader,
                                     const FrameContext& frame, const DecodeItem& item,
                                     Arena& scratch) {
  std::span<std::uint8_t> symbols;
  if (item.step == DecodeItem::Step::kFinish) {
    const PieceAhead& piece = ahead_[item.piece];
    if (!piece.Wait()) return {};  // its reader says why
    symbols = piece.symbols.subspan(item.first_symbol, item.symbols);
  } else if (item.step == DecodeItem::Step::kRead) {
    PieceReading reading(ahead_[item.piece]);
    KVSERVE_TRY(ReadPiece(chain, *reader, item.piece, ahead_[item.piece].symbols, scratch));
    reading.Succeeded();
    return {};
  } else if (reader != nullptr && item.piece != DecodeItem::kNoPiece) {
    symbols = scratch.Take<std::uint8_t>(item.symbols);
    KVSERVE_TRY(ReadPiece(chain, *reader, item.piece, symbols, scratch));
  }
  return FinishItem(chain, reader, frame, item, symbols, scratch);
}

Status FastDecoder::FinishItem(const Chain& chain, const SymbolReader* reader,
                               const FrameContext& frame, const DecodeItem& item,
                               std::span<std::uint8_t> symbols, Arena& scratch) {
  if (item.cut) {
    const std::size_t p = item.first_plane;
    const PlaneContext context = ContextOf(frame, planes_[p], scratch);
    return DecodeByRows(chain, context, plan_.symbols[p], {item.first_row, item.rows, symbols},
                        side_[p], planes_[p].view, clock_);
  }
  for (std::size_t p = item.first_plane; p < item.first_plane + item.planes; ++p) {
    SymbolPlane& plane = plan_.symbols[p];
    if (reader != nullptr) {
      plane.symbols = symbols.first(plane.count());
      symbols = symbols.subspan(plane.count());
    }
    KVSERVE_TRY(DecodePlane(chain, ContextOf(frame, planes_[p], scratch), p));
  }
  return {};
}

Status FastDecoder::DecodePlane(const Chain& chain, const PlaneContext& context, std::size_t p) {
  ByteReader side(side_[p]);
  if (context.tokens.empty()) return CheckSideRead(side, context);
  const SymbolPlane& symbols = plan_.symbols[p];
  if (by_rows_) {
    return DecodeByRows(chain, context, symbols, {0, symbols.tokens, symbols.symbols}, side_[p],
                        planes_[p].view, clock_);
  }
  if (chain.native()) {
    const auto& quantizer = chain.quantizer();
    const StageTimer timer(clock_, ClockSlot::kQuantizer);
    KVSERVE_TRY(Named(quantizer.stage->DequantizeNative(context, symbols, side, planes_[p].view),
                      context, *quantizer.info));
  } else {
    KVSERVE_TRY(DecodeWhole(chain, context, p, side));
  }
  return CheckSideRead(side, context);
}

Status FastDecoder::DecodeWhole(const Chain& chain, const PlaneContext& context, std::size_t p,
                                ByteReader& side) {
  const PlaneShape shape = ShapeOf(planes_[p]);
  const std::span<float> floats = context.arena->Take<float>(planes_[p].view.values());
  const RealPlane values{floats.data(), shape.tokens, shape.heads, shape.dim};
  {
    const auto& quantizer = chain.quantizer();
    const StageTimer timer(clock_, ClockSlot::kQuantizer);
    KVSERVE_TRY(Named(quantizer.stage->Dequantize(context, plan_.symbols[p], side, values), context,
                      *quantizer.info));
  }
  for (std::size_t i = chain.transforms().size(); i-- > 0;) {
    const auto& transform = chain.transforms()[i];
    const StageTimer timer(clock_, ClockSlot::kFirstTransform + i);
    KVSERVE_TRY(Named(transform.stage->Inverse(context, values, side), context, *transform.info));
  }
  const StageTimer timer(clock_, ClockSlot::kConvert);
  ZeroDropped(plan_.symbols[p], values);
  return StoreRows(values.span(), planes_[p].view, 0, shape.tokens) ? Status()
                                                                    : NotNumbers(context);
}

}  // namespace kvserve
