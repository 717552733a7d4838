#include "pipeline/reference_executor.h"

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "base/byte_io.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/try.h"
#include "pipeline/feedback_history.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"

namespace kvserve {
namespace {

constexpr std::string_view kConvert = "convert";

std::string Where(const PlaneContext& plane) {
  return PlaneName(plane.layer, plane.kind);
}

Status Named(Status status, const PlaneContext& plane, const StageInfo& info) {
  if (status) return status;
  return MakeError(status.error().code,
                   Where(plane) + ", " + std::string(info.name) + ": " + status.error().message);
}

Status Named(Status status, const StageInfo& info) {
  if (status) return status;
  return MakeError(status.error().code, std::string(info.name) + ": " + status.error().message);
}

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
  // Shapes and storage of all symbols. The storage is not written, so that a hostile header costs
  // address space and not memory until the codec has found the symbols.
  Status Prepare() {
    std::uint64_t total = 0;
    const StageInfo& info = *chain_.quantizer().info;
    for (const auto& plane : planes_) {
      SymbolPlane& symbols = symbols_.emplace_back();
      symbols.layer = plane.layer;
      symbols.kind = plane.kind;
      symbols.tokens = plane.tokens.size();
      const PlaneContext context = Context(plane);
      KVSERVE_TRY(Named(chain_.quantizer().stage->Plan(context, plane.view.dtype, plane.view.heads,
                                                       plane.view.dim, symbols),
                        context, info));
      if (symbols.alphabet < 1 || symbols.alphabet > 256) {
        return Named(MakeError(ErrorCode::kInternal, "alphabet is outside 1..256"), context, info);
      }
      const auto sum = CheckedAdd(total, symbols.count());
      if (!sum) return MakeError(ErrorCode::kResourceExhausted, "a frame has too many symbols");
      total = *sum;
    }
    try {
      symbol_storage_.reset(new std::uint8_t[total]);
    } catch (const std::bad_alloc&) {
      return MakeError(ErrorCode::kResourceExhausted,
                       "no memory for " + std::to_string(total) + " symbols");
    }
    std::span<std::uint8_t> rest(symbol_storage_.get(), total);
    for (SymbolPlane& symbols : symbols_) {
      symbols.symbols = rest.first(symbols.count());
      rest = rest.subspan(symbols.count());
    }
    return {};
  }

  // Room for the floats of any one plane.
  Status PrepareFloats() {
    std::uint64_t largest = 0;
    for (const auto& plane : planes_) largest = std::max(largest, plane.view.values());
    try {
      floats_.resize(chain_.native() ? 0 : largest);
    } catch (const std::exception&) {  // bad_alloc or length_error
      return MakeError(ErrorCode::kResourceExhausted,
                       "no memory for " + std::to_string(largest) + " values");
    }
    return {};
  }

  // Takes back the scratch memory of the plane before.
  [[nodiscard]] PlaneContext Context(const OrderedPlane<Byte>& plane) {
    plane_arena_.Reset();
    PlaneContext context;
    context.frame = &frame_;
    context.layer = plane.layer;
    context.kind = plane.kind;
    context.tokens = plane.tokens;
    context.arena = &plane_arena_;
    return context;
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
  std::vector<SymbolPlane> symbols_;  // [plane]
  std::vector<float> floats_;         // of the plane in hand
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
    if (memory_ != nullptr && memory_->selectors.size() != chain_.selectors().size()) {
      return MakeError(ErrorCode::kInvalidArgument, "the encoder memory is of another chain");
    }
    KVSERVE_TRY(Prepare());
    KVSERVE_TRY(PrepareFloats());
    KVSERVE_TRY(WeighTokens());
    side_of_stage_.resize(chain_.transforms().size() + 1);
    std::vector<std::byte> side;
    std::vector<std::size_t> side_ends;
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      PlaneContext context = Context(planes_[p]);
      if (!weights_.empty()) context.token_weights = weights_[p];
      if (context.tokens.empty()) {
        history_.RecordEmpty(context);
      } else if (chain_.native()) {
        KVSERVE_TRY(EncodeNative(context, p, side));
      } else {
        KVSERVE_TRY(EncodeReal(context, p, side));
      }
      side_ends.push_back(side.size());
    }
    WriteSide(side, side_ends, out.side);
    return WriteSymbols(out);
  }

 private:
  Status WeighTokens() {
    if (chain_.selectors().empty()) return {};
    for (const auto& plane : planes_) weights_.emplace_back(plane.tokens.size(), 1.0F);
    for (std::size_t i = 0; i < chain_.selectors().size(); ++i) {
      const auto& selector = chain_.selectors()[i];
      SelectorMemory* memory = memory_ == nullptr ? nullptr : memory_->selectors[i].get();
      const ScopedTimer timer(Seconds(selector.info->name));
      KVSERVE_TRY(Named(selector.stage->Weigh(frame_, view_, memory, weights_), *selector.info));
    }
    return {};
  }

  Status EncodeNative(const PlaneContext& context, std::size_t p, std::vector<std::byte>& side) {
    const auto& quantizer = chain_.quantizer();
    ByteWriter writer(side);
    const ScopedTimer timer(Seconds(quantizer.info->name));
    return Named(quantizer.stage->QuantizeNative(context, planes_[p].view, symbols_[p], writer),
                 context, *quantizer.info);
  }

  Status EncodeReal(PlaneContext context, std::size_t p, std::vector<std::byte>& side) {
    const RealPlane values = Floats(planes_[p], floats_);
    {
      const ScopedTimer timer(Seconds(kConvert));
      LoadFloats(planes_[p].view, values.span());
      KVSERVE_TRY(CheckFinite(context, values, "the tensor"));
    }
    for (auto& bytes : side_of_stage_) bytes.clear();
    for (std::size_t i = 0; i < chain_.transforms().size(); ++i) {
      const auto& transform = chain_.transforms()[i];
      context.decoded = history_.planes(i);
      ByteWriter writer(side_of_stage_[i]);
      const ScopedTimer timer(Seconds(transform.info->name));
      KVSERVE_TRY(
          Named(transform.stage->Forward(context, values, writer), context, *transform.info));
      KVSERVE_TRY(CheckFinite(context, values, transform.info->name));
    }
    context.decoded = {};
    const auto& quantizer = chain_.quantizer();
    ByteWriter writer(side_of_stage_.back());
    {
      const ConstRealPlane coefficients{values.data, values.tokens, values.heads, values.dim};
      const ScopedTimer timer(Seconds(quantizer.info->name));
      KVSERVE_TRY(Named(quantizer.stage->Quantize(context, coefficients, symbols_[p], writer),
                        context, *quantizer.info));
    }
    const std::size_t begin = side.size();
    for (std::size_t i = side_of_stage_.size(); i-- > 0;) {  // the order a decoder reads in
      side.insert(side.end(), side_of_stage_[i].begin(), side_of_stage_[i].end());
    }
    if (!history_.first()) return {};
    ByteReader reader{std::span<const std::byte>(side).subspan(begin)};
    return Reconstruct(context, symbols_[p], *history_.first(), reader, values);
  }

  Status CheckFinite(const PlaneContext& context, const RealPlane& values,
                     std::string_view source) {
    const auto at = FindNonFinite(values.span());
    if (!at) return {};
    const std::size_t token = context.tokens.begin + *at / values.columns();
    const std::size_t column = *at % values.columns();
    return MakeError(ErrorCode::kBadInput,
                     Where(context) + " token " + std::to_string(token) + " head " +
                         std::to_string(column / values.dim) + " channel " +
                         std::to_string(column % values.dim) + ": " + std::string(source) +
                         " holds a value that is not finite, and '" +
                         std::string(chain_.quantizer().info->name) +
                         "' needs finite ones; 'lossless' and 'none' take any");
  }

  static void WriteSide(const std::vector<std::byte>& side, const std::vector<std::size_t>& ends,
                        std::vector<std::byte>& out) {
    out.clear();
    if (side.empty()) return;
    ByteWriter writer(out);
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      writer.PutVarint(end - begin);
      begin = end;
    }
    writer.PutBytes(side);
  }

  Status WriteSymbols(CodedSections& out) {
    out.classes.clear();
    out.symbols.clear();
    {
      ByteWriter writer(out.classes);
      const auto& quantizer = chain_.quantizer();
      const ScopedTimer timer(Seconds(quantizer.info->name));
      KVSERVE_TRY(Named(quantizer.stage->WriteClasses(frame_, symbols_, writer), *quantizer.info));
    }
    const auto& codec = chain_.codec();
    out.symbols.reserve(codec.stage->MaxEncodedBytes(symbols_));
    ByteWriter writer(out.symbols);
    const ScopedTimer timer(Seconds(codec.info->name));
    return Named(codec.stage->Encode(frame_, symbols_, writer), *codec.info);
  }

  const ConstKvView& view_;
  EncoderMemory* memory_;
  std::vector<std::vector<float>> weights_;            // [plane][token]; empty without selectors
  std::vector<std::vector<std::byte>> side_of_stage_;  // [transform, then quantizer]
};

class Decoder : private ChainRun<std::byte> {
 public:
  Decoder(const Chain& chain, const KvView& shapes, const FrameContext& frame,
          StageSeconds* seconds)
      : ChainRun(chain, shapes, frame, seconds) {}

  Status Run(const SectionBytes& sections, const OutputPlanes& output) {
    KVSERVE_TRY(Prepare());
    KVSERVE_TRY(ReadSymbols(sections));
    ByteReader side(sections.side);
    KVSERVE_TRY(ReadSideLengths(side));
    KVSERVE_ASSIGN(const KvView out, output());
    planes_ = CodingOrder(out);
    KVSERVE_TRY(PrepareFloats());
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      const PlaneContext context = Context(planes_[p]);
      KVSERVE_ASSIGN(const auto bytes, side.GetBytes(side_bytes_[p]));
      ByteReader plane_side(bytes);
      if (context.tokens.empty()) {
        history_.RecordEmpty(context);
      } else if (chain_.native()) {
        KVSERVE_TRY(DecodeNative(context, p, plane_side));
      } else {
        KVSERVE_TRY(DecodeReal(context, p, plane_side));
      }
      if (plane_side.remaining() > 0) {
        return MakeError(ErrorCode::kCorruptData, Where(context) + ": " +
                                                      std::to_string(plane_side.remaining()) +
                                                      " side bytes are left over");
      }
    }
    return {};
  }

 private:
  Status ReadSymbols(const SectionBytes& sections) {
    {
      ByteReader reader(sections.classes);
      const auto& quantizer = chain_.quantizer();
      const ScopedTimer timer(Seconds(quantizer.info->name));
      KVSERVE_TRY(Named(quantizer.stage->ReadClasses(frame_, symbols_, reader), *quantizer.info));
      KVSERVE_TRY(CheckConsumed(reader, "classes"));
    }
    ByteReader reader(sections.symbols);
    const auto& codec = chain_.codec();
    const ScopedTimer timer(Seconds(codec.info->name));
    KVSERVE_TRY(Named(codec.stage->Decode(frame_, reader, symbols_), *codec.info));
    return CheckConsumed(reader, "symbols");
  }

  static Status CheckConsumed(const ByteReader& reader, const char* section) {
    if (reader.remaining() == 0) return {};
    return MakeError(ErrorCode::kCorruptData, std::string("section ") + section + ": " +
                                                  std::to_string(reader.remaining()) +
                                                  " bytes are left over");
  }

  Status ReadSideLengths(ByteReader& side) {
    side_bytes_.assign(planes_.size(), 0);
    if (side.remaining() == 0) return {};
    std::uint64_t total = 0;
    for (std::uint64_t& bytes : side_bytes_) {
      KVSERVE_ASSIGN(bytes, side.GetVarint());
      const auto sum = CheckedAdd(total, bytes);
      if (!sum) return MakeError(ErrorCode::kCorruptData, "section side: lengths overflow");
      total = *sum;
    }
    if (total == side.remaining()) return {};
    return MakeError(ErrorCode::kCorruptData,
                     "section side: lengths sum to " + std::to_string(total) + " where " +
                         std::to_string(side.remaining()) + " bytes follow");
  }

  Status DecodeNative(const PlaneContext& context, std::size_t p, ByteReader& side) {
    const auto& quantizer = chain_.quantizer();
    const ScopedTimer timer(Seconds(quantizer.info->name));
    return Named(quantizer.stage->DequantizeNative(context, symbols_[p], side, planes_[p].view),
                 context, *quantizer.info);
  }

  Status DecodeReal(const PlaneContext& context, std::size_t p, ByteReader& side) {
    const RealPlane values = Floats(planes_[p], floats_);
    KVSERVE_TRY(Reconstruct(context, symbols_[p], 0, side, values));
    const ScopedTimer timer(Seconds(kConvert));
    if (StoreFloats(values.span(), planes_[p].view)) return {};
    return MakeError(ErrorCode::kCorruptData,  // an encoder takes only finite values
                     Where(context) + ": decodes to values that are not numbers");
  }

  std::vector<std::uint64_t> side_bytes_;  // [plane]
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
      chain, sections, frame, out, [&] { return out; }, seconds);
}

}  // namespace kvserve
