#include "pipeline/reference_executor.h"

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "base/byte_io.h"
#include "base/clock.h"
#include "base/try.h"
#include "pipeline/dropped_tokens.h"
#include "pipeline/executor_faults.h"
#include "pipeline/feedback_history.h"
#include "pipeline/frame_plan.h"
#include "pipeline/frame_queries.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"
#include "pipeline/side_section.h"
#include "pipeline/token_weights.h"

namespace kvserve {
namespace {

constexpr std::string_view kConvert = "convert";

// What both directions share: the planes, their symbols, one float buffer and the feedback.
template <typename Byte>
class ChainRun {
 public:
  ChainRun(const Chain& chain, const BasicKvView<Byte>& view, const FrameContext& frame,
           StageSeconds* seconds)
      : chain_(chain),
        frame_(frame),
        seconds_(seconds),
        planes_(CodingOrder(view)),
        history_(chain) {
    if (frame_.arena == nullptr) frame_.arena = &frame_arena_;
    if (frame_.workers == nullptr) frame_.workers = &one_worker_;
  }

 protected:
  Status Plan() { return PlanFrame<Byte>(chain_, planes_, frame_, plane_arena_, plan_); }

  // Storage of all symbols, once their classes are known. It is not written, so that a hostile
  // header costs address space and not memory until the codec has found the symbols.
  Status PrepareSymbols() {
    KVSERVE_TRY(LayOutSymbols(plan_));
    try {
      symbol_storage_.reset(new std::uint8_t[plan_.symbol_count]);
    } catch (const std::bad_alloc&) {
      return MakeError(ErrorCode::kResourceExhausted,
                       "no memory for " + std::to_string(plan_.symbol_count) + " symbols");
    }
    PlaceSymbols({symbol_storage_.get(), plan_.symbol_count}, plan_);
    return {};
  }

  // Room for the floats of any one plane.
  Status PrepareFloats() {
    try {
      floats_.resize(chain_.native() ? 0 : plan_.largest_plane);
    } catch (const std::exception&) {  // bad_alloc or length_error
      return MakeError(ErrorCode::kResourceExhausted,
                       "no memory for " + std::to_string(plan_.largest_plane) + " values");
    }
    return {};
  }

  // Takes back the scratch memory of the plane before.
  [[nodiscard]] PlaneContext Context(const OrderedPlane<Byte>& plane) {
    plane_arena_.Reset();
    return ContextOf(frame_, plane, plane_arena_);
  }

  [[nodiscard]] RealPlane Floats(const OrderedPlane<Byte>& plane, std::vector<float>& storage) {
    return {storage.data(), plane.view.tokens, plane.view.heads, plane.view.dim};
  }

  // Dequantizes and inverts the transforms down to `last`, keeping what later planes predict from.
  Status Reconstruct(PlaneContext context, const SymbolPlane& symbols, std::size_t last,
                     ByteReader& side, RealPlane values) {
    {
      const ScopedTimer timer(Seconds(chain_.quantizer().info->name));
      KVSERVE_TRY(Named(chain_.quantizer().stage->Dequantize(context, symbols, side, values),
                        context, *chain_.quantizer().info));
    }
    for (std::size_t i = chain_.transforms().size(); i-- > last;) {
      const auto& transform = chain_.transforms()[i];
      context.decoded = history_.planes(i);
      const ScopedTimer timer(Seconds(transform.info->name));
      KVSERVE_TRY(Named(transform.stage->Inverse(context, values, side), context, *transform.info));
      history_.Record(i, context, {values.data, values.tokens, values.heads, values.dim});
    }
    return {};
  }

  [[nodiscard]] double& Seconds(std::string_view name) {
    return seconds_ == nullptr ? unused_seconds_ : (*seconds_)[std::string(name)];
  }

  const Chain& chain_;
  FrameContext frame_;
  StageSeconds* seconds_;
  double unused_seconds_ = 0.0;
  std::vector<OrderedPlane<Byte>> planes_;
  FramePlan plan_;
  std::vector<float> floats_;  // of the plane in hand
  FeedbackHistory history_;

 private:
  Arena frame_arena_;
  Arena plane_arena_;
  Workers one_worker_;
  std::unique_ptr<std::uint8_t[]> symbol_storage_;
};

class Encoder : private ChainRun<const std::byte> {
 public:
  Encoder(const Chain& chain, const ConstKvView& view, const FrameContext& frame,
          StageSeconds* seconds, EncoderMemory* memory)
      : ChainRun(chain, view, frame, seconds), view_(view), memory_(memory) {}

  Status Run(CodedSections& out) {
    KVSERVE_TRY(Plan());
    KVSERVE_TRY(WeighTokens());
    KVSERVE_TRY(PrepareSymbols());
    KVSERVE_TRY(PrepareFloats());
    std::vector<StageSides> side(planes_.size(), StageSides(chain_.transforms().size() + 1));
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      PlaneContext context = Context(planes_[p]);
      if (!weights_.empty()) context.token_weights = weights_[p];
      if (context.tokens.empty()) {
        history_.RecordEmpty(context);
      } else if (chain_.native()) {
        KVSERVE_TRY(EncodeNative(context, p, side[p].back()));
      } else {
        KVSERVE_TRY(EncodeReal(context, p, side[p]));
      }
    }
    WriteSide(side, out.side);
    return WriteSymbols(out);
  }

 private:
  Status WeighTokens() {
    KVSERVE_TRY(CheckQueries(chain_, view_, frame_.queries));
    KVSERVE_TRY(BeginWeights(chain_, memory_, planes_, weights_));
    for (std::size_t i = 0; i < chain_.selectors().size(); ++i) {
      const auto& selector = chain_.selectors()[i];
      SelectorMemory* memory = memory_ == nullptr ? nullptr : memory_->selectors[i].get();
      const ScopedTimer timer(Seconds(selector.info->name));
      KVSERVE_TRY(Named(selector.stage->Weigh(frame_, view_, memory, weights_), *selector.info));
    }
    KVSERVE_TRY(CheckWeights(chain_, planes_, weights_));
    const auto& quantizer = chain_.quantizer();
    const ScopedTimer timer(Seconds(quantizer.info->name));
    return Named(quantizer.stage->Classify(frame_, weights_, plan_.symbols), *quantizer.info);
  }

  Status EncodeNative(const PlaneContext& context, std::size_t p, std::vector<std::byte>& side) {
    const auto& quantizer = chain_.quantizer();
    ByteWriter writer(side);
    const ScopedTimer timer(Seconds(quantizer.info->name));
    return Named(
        quantizer.stage->QuantizeNative(context, planes_[p].view, plan_.symbols[p], writer),
        context, *quantizer.info);
  }

  Status EncodeReal(PlaneContext context, std::size_t p, StageSides& sides) {
    const RealPlane values = Floats(planes_[p], floats_);
    const ConstRealPlane coefficients{values.data, values.tokens, values.heads, values.dim};
    const auto& quantizer = chain_.quantizer();
    {
      const ScopedTimer timer(Seconds(kConvert));
      LoadFloats(planes_[p].view, values.span());
      KVSERVE_TRY(CheckFinite(context, coefficients, "the tensor", quantizer.info->name));
    }
    for (std::size_t i = 0; i < chain_.transforms().size(); ++i) {
      const auto& transform = chain_.transforms()[i];
      context.decoded = history_.planes(i);
      ByteWriter writer(sides[i]);
      const ScopedTimer timer(Seconds(transform.info->name));
      KVSERVE_TRY(
          Named(transform.stage->Forward(context, values, writer), context, *transform.info));
      KVSERVE_TRY(CheckBounded(context, coefficients, transform.info->name));
    }
    context.decoded = {};
    ByteWriter writer(sides.back());
    {
      const ScopedTimer timer(Seconds(quantizer.info->name));
      KVSERVE_TRY(Named(quantizer.stage->Quantize(context, coefficients, plan_.symbols[p], writer),
                        context, *quantizer.info));
    }
    if (!history_.first()) return {};
    std::vector<std::byte> joined;
    ByteWriter whole(joined);
    AppendSides(sides, whole);
    ByteReader reader(joined);
    return Reconstruct(context, plan_.symbols[p], *history_.first(), reader, values);
  }

  Status WriteSymbols(CodedSections& out) {
    out.classes.clear();
    out.symbols.clear();
    {
      ByteWriter writer(out.classes);
      const auto& quantizer = chain_.quantizer();
      const ScopedTimer timer(Seconds(quantizer.info->name));
      KVSERVE_TRY(
          Named(quantizer.stage->WriteClasses(frame_, plan_.symbols, writer), *quantizer.info));
    }
    const auto& codec = chain_.codec();
    out.symbols.reserve(codec.stage->MaxEncodedBytes(plan_.coded()));
    ByteWriter writer(out.symbols);
    const ScopedTimer timer(Seconds(codec.info->name));
    return Named(codec.stage->Encode(frame_, plan_.coded(), writer), *codec.info);
  }

  const ConstKvView& view_;
  EncoderMemory* memory_;
  std::vector<std::vector<float>> weights_;  // [plane][token]; empty without selectors
};

class Decoder : private ChainRun<std::byte> {
 public:
  Decoder(const Chain& chain, const KvView& shapes, const FrameContext& frame,
          StageSeconds* seconds)
      : ChainRun(chain, shapes, frame, seconds) {}

  Status Run(const SectionBytes& sections, const OutputPlanes& output) {
    KVSERVE_TRY(Plan());
    KVSERVE_TRY(ReadClasses(sections));
    KVSERVE_TRY(PrepareSymbols());
    KVSERVE_TRY(ReadSymbols(sections));
    std::vector<std::span<const std::byte>> side;
    KVSERVE_TRY(SplitSide(sections.side, planes_.size(), side));
    KVSERVE_ASSIGN(const KvView* const out, output());
    planes_ = CodingOrder(*out);
    KVSERVE_TRY(PrepareFloats());
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      const PlaneContext context = Context(planes_[p]);
      ByteReader plane_side(side[p]);
      if (context.tokens.empty()) {
        history_.RecordEmpty(context);
      } else if (chain_.native()) {
        KVSERVE_TRY(DecodeNative(context, p, plane_side));
      } else {
        KVSERVE_TRY(DecodeReal(context, p, plane_side));
      }
      KVSERVE_TRY(CheckSideRead(plane_side, context));
    }
    return {};
  }

 private:
  Status ReadClasses(const SectionBytes& sections) {
    ByteReader reader(sections.classes);
    const auto& quantizer = chain_.quantizer();
    const ScopedTimer timer(Seconds(quantizer.info->name));
    KVSERVE_TRY(
        Named(quantizer.stage->ReadClasses(frame_, plan_.symbols, reader), *quantizer.info));
    KVSERVE_TRY(CheckSectionRead(reader, "classes"));
    if (frame_.dropped != nullptr) frame_.dropped->Collect(frame_.tokens, planes_, plan_.symbols);
    return {};
  }

  Status ReadSymbols(const SectionBytes& sections) {
    ByteReader reader(sections.symbols);
    const auto& codec = chain_.codec();
    const ScopedTimer timer(Seconds(codec.info->name));
    KVSERVE_TRY(Named(codec.stage->Decode(frame_, reader, plan_.coded()), *codec.info));
    return CheckSectionRead(reader, "symbols");
  }

  Status DecodeNative(const PlaneContext& context, std::size_t p, ByteReader& side) {
    const auto& quantizer = chain_.quantizer();
    const ScopedTimer timer(Seconds(quantizer.info->name));
    return Named(
        quantizer.stage->DequantizeNative(context, plan_.symbols[p], side, planes_[p].view),
        context, *quantizer.info);
  }

  Status DecodeReal(const PlaneContext& context, std::size_t p, ByteReader& side) {
    const RealPlane values = Floats(planes_[p], floats_);
    KVSERVE_TRY(Reconstruct(context, plan_.symbols[p], 0, side, values));
    ZeroDropped(plan_.symbols[p], values);
    const ScopedTimer timer(Seconds(kConvert));
    if (StoreFloats(values.span(), planes_[p].view)) return {};
    return NotNumbers(context);
  }
};

}  // namespace

EncoderMemory NewEncoderMemory(const Chain& chain) {
  EncoderMemory memory;
  for (const auto& selector : chain.selectors()) {
    memory.selectors.push_back(selector.stage->NewMemory());
  }
  return memory;
}

Status EncodePlanes(const Chain& chain, const ConstKvView& view, const FrameContext& frame,
                    CodedSections& out, StageSeconds* seconds, EncoderMemory* memory) {
  return Encoder(chain, view, frame, seconds, memory).Run(out);
}

Status DecodePlanes(const Chain& chain, const SectionBytes& sections, const FrameContext& frame,
                    const KvView& shapes, const OutputPlanes& output, StageSeconds* seconds) {
  return Decoder(chain, shapes, frame, seconds).Run(sections, output);
}

Status DecodePlanes(const Chain& chain, const SectionBytes& sections, const FrameContext& frame,
                    const KvView& out, StageSeconds* seconds) {
  return DecodePlanes(
      chain, sections, frame, out, [&] { return &out; }, seconds);
}

}  // namespace kvserve
