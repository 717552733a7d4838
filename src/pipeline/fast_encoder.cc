#include "pipeline/fast_encoder.h"

#include <atomic>

#include "base/byte_io.h"
#include "base/try.h"
#include "pipeline/executor_faults.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_tiles.h"
#include "pipeline/token_weights.h"

namespace kvserve {
Status FastEncoder::Encode(const Chain& chain, const ConstKvView& view, const FrameContext& frame,
                           CodedSections& out, StageSeconds* seconds, EncoderMemory* memory) {
  frame.arena->Reset();
  if (chain.needs_feedback() && !WorksByTiles(chain)) {
    return EncodePlanes(chain, view, frame, out, seconds, memory);
  }
  clock_.Start(seconds != nullptr);
  Status status = Run(chain, view, frame, out, memory);
  if (seconds != nullptr) clock_.Report(chain, *seconds);
  return status;
}

Status FastEncoder::Run(const Chain& chain, const ConstKvView& view, const FrameContext& frame,
                        CodedSections& out, EncoderMemory* memory) {
  CodingOrder(view, planes_);
  KVSERVE_TRY(PlanFrame<const std::byte>(chain, planes_, frame, *frame.arena, plan_));
  KVSERVE_TRY(WeighTokens(chain, view, frame, memory));
  KVSERVE_TRY(LayOutSymbols(plan_));
  PlaceSymbols(frame.arena->Take<std::uint8_t>(plan_.symbol_count), plan_);
  by_rows_ = WorksByRows(chain);
  side_.resize(planes_.size());
  out.symbols.clear();
  ByteWriter symbols(out.symbols);
  SymbolWriter* writer = nullptr;
  if (WorksByTiles(chain)) {
    symbols.bytes().reserve(chain.codec().stage->MaxEncodedBytes(plan_.coded()));
    KVSERVE_TRY(EncodeTiles(chain, view, frame));
  } else {
    KVSERVE_TRY(BeginSymbols(chain, frame, symbols, writer));
    KVSERVE_TRY(EncodePlanesByItems(chain, frame, writer));
  }
  WriteSide(side_, out.side);
  KVSERVE_TRY(WriteClasses(chain, frame, out));
  return FinishSymbols(chain, frame, writer, symbols);
}

Status FastEncoder::EncodePlanesByItems(const Chain& chain, const FrameContext& frame,
                                        SymbolWriter* writer) {
  return frame.workers->Run(items_.size(), [&](std::size_t i, Arena& scratch) {
    if (items_[i].step == EncodeItem::Step::kPiece) {
      return CodePiece(*writer, items_[i].index, scratch);
    }
    return EncodePlaneAt(chain, frame, items_[i].index, writer, scratch);
  });
}

// A frame that cannot be coded is given to the reference executor, which names the value.
Status FastEncoder::EncodeTiles(const Chain& chain, const ConstKvView& view,
                                const FrameContext& frame) {
  tiles_.Begin(chain, frame, planes_, plan_, clock_);
  std::atomic<bool> finite = true;
  KVSERVE_TRY(frame.workers->Run(tiles_.count(), [&](std::size_t tile, Arena& scratch) -> Status {
    KVSERVE_ASSIGN(const bool all, tiles_.Encode(tile, scratch));
    if (!all) finite.store(false, std::memory_order_relaxed);
    return {};
  }));
  if (finite) {
    tiles_.WriteSides(side_);
    return {};
  }
  CodedSections unused;
  KVSERVE_TRY(EncodePlanes(chain, view, frame, unused));
  return MakeError(ErrorCode::kInternal, "executors do not agree on which values can be coded");
}

// What the codec needs before the first plane, and in which order the work is done.
Status FastEncoder::BeginSymbols(const Chain& chain, const FrameContext& frame, ByteWriter& symbols,
                                 SymbolWriter*& writer) {
  const auto& codec = chain.codec();
  const StageTimer timer(clock_, ClockSlot::kCodec);
  symbols.bytes().reserve(codec.stage->MaxEncodedBytes(plan_.coded()));
  if (plan_.runs.empty()) {
    auto begun = codec.stage->Begin(frame, plan_.symbols, symbols);
    if (!begun) return Named(tl::unexpected(std::move(begun).error()), *codec.info);
    writer = *begun;
  }
  const auto pieces = writer == nullptr ? std::span<const SymbolPiece>() : writer->pieces();
  OrderEncoding(pieces, planes_.size(), frame.workers->threads(), items_);
  counted_ = PlaneGates(planes_.size(), *frame.arena);
  decided_ = 0;
  return {};
}

Status FastEncoder::EncodePlaneAt(const Chain& chain, const FrameContext& frame, std::size_t p,
                                  SymbolWriter* writer, Arena& scratch) {
  PlaneCounting counting(counted_, p);
  PlaneContext context = ContextOf(frame, planes_[p], scratch);
  if (!weights_.empty()) context.token_weights = weights_[p];
  KVSERVE_TRY(EncodePlane(chain, context, p));
  if (writer != nullptr) {
    const StageTimer timer(clock_, ClockSlot::kCodec);
    KVSERVE_TRY(Named(writer->Count(p), *chain.codec().info));
  }
  counting.Succeeded();
  return {};
}

Status FastEncoder::CodePiece(SymbolWriter& writer, std::size_t index, Arena& scratch) {
  const SymbolPiece& piece = writer.pieces()[index];
  if (!counted_.Wait(piece.first_plane + piece.planes)) return {};  // that plane says why
  const StageTimer timer(clock_, ClockSlot::kCodec);
  {
    const std::lock_guard lock(deciding_);
    // Counted afterwards: what has thrown is decided again, or others would code it undecided.
    for (; decided_ <= index; ++decided_) writer.Decide(decided_);
  }
  writer.Code(index, scratch);
  return {};
}

Status FastEncoder::WeighTokens(const Chain& chain, const ConstKvView& view,
                                const FrameContext& frame, EncoderMemory* memory) {
  KVSERVE_TRY(BeginWeights(chain, memory, planes_, weights_));
  for (std::size_t i = 0; i < chain.selectors().size(); ++i) {
    const auto& selector = chain.selectors()[i];
    SelectorMemory* past = memory == nullptr ? nullptr : memory->selectors[i].get();
    const SharedStageTimer timer(clock_, ClockSlot::kFirstTransform + chain.transforms().size() + i,
                                 *frame.workers);
    KVSERVE_TRY(Named(selector.stage->Weigh(frame, view, past, weights_), *selector.info));
  }
  KVSERVE_TRY(CheckWeights(chain, planes_, weights_));
  const auto& quantizer = chain.quantizer();
  const SharedStageTimer timer(clock_, ClockSlot::kQuantizer, *frame.workers);
  return Named(quantizer.stage->Classify(frame, weights_, plan_.symbols), *quantizer.info);
}

Status FastEncoder::EncodePlane(const Chain& chain, const PlaneContext& context, std::size_t p) {
  StageSides& sides = side_[p];
  sides.resize(chain.transforms().size() + 1);
  for (auto& bytes : sides) bytes.clear();
  if (context.tokens.empty()) return {};
  const auto& quantizer = chain.quantizer();
  ByteWriter side(sides.back());
  if (chain.native()) {
    const StageTimer timer(clock_, ClockSlot::kQuantizer);
    return Named(quantizer.stage->QuantizeNative(context, planes_[p].view, plan_.symbols[p], side),
                 context, *quantizer.info);
  }
  if (by_rows_) {
    KVSERVE_ASSIGN(const bool finite,
                   EncodeByRows(chain, context, planes_[p].view, plan_.symbols[p], side, clock_));
    if (finite) return {};
    sides.back().clear();
  }
  return EncodeWhole(chain, context, p);
}

Status FastEncoder::EncodeWhole(const Chain& chain, const PlaneContext& context, std::size_t p) {
  const auto& quantizer = chain.quantizer();
  const PlaneShape shape = ShapeOf(planes_[p]);
  const std::span<float> floats = context.arena->Take<float>(planes_[p].view.values());
  const RealPlane values{floats.data(), shape.tokens, shape.heads, shape.dim};
  const ConstRealPlane coefficients{floats.data(), shape.tokens, shape.heads, shape.dim};
  {
    const StageTimer timer(clock_, ClockSlot::kConvert);
    if (!LoadRows(planes_[p].view, 0, shape.tokens, floats)) {
      return CheckFinite(context, coefficients, "the tensor", quantizer.info->name);
    }
  }
  for (std::size_t i = 0; i < chain.transforms().size(); ++i) {
    const auto& transform = chain.transforms()[i];
    ByteWriter side(side_[p][i]);
    const StageTimer timer(clock_, ClockSlot::kFirstTransform + i);
    KVSERVE_TRY(Named(transform.stage->Forward(context, values, side), context, *transform.info));
    KVSERVE_TRY(CheckBounded(context, coefficients, transform.info->name));
  }
  ByteWriter side(side_[p].back());
  const StageTimer timer(clock_, ClockSlot::kQuantizer);
  return Named(quantizer.stage->Quantize(context, coefficients, plan_.symbols[p], side), context,
               *quantizer.info);
}

Status FastEncoder::WriteClasses(const Chain& chain, const FrameContext& frame,
                                 CodedSections& out) {
  out.classes.clear();
  ByteWriter classes(out.classes);
  const auto& quantizer = chain.quantizer();
  const SharedStageTimer timer(clock_, ClockSlot::kQuantizer, *frame.workers);
  return Named(quantizer.stage->WriteClasses(frame, plan_.symbols, classes), *quantizer.info);
}

Status FastEncoder::FinishSymbols(const Chain& chain, const FrameContext& frame,
                                  SymbolWriter* writer, ByteWriter& symbols) {
  const auto& codec = chain.codec();
  const SharedStageTimer timer(clock_, ClockSlot::kCodec, *frame.workers);
  if (writer == nullptr) {
    return Named(codec.stage->Encode(frame, plan_.coded(), symbols), *codec.info);
  }
  writer->Finish();
  return {};
}

}  // namespace kvserve
