// Decoding of the frame's wire format: the built-in stages over the fast executor.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/arena.h"
#include "base/clock.h"
#include "base/try.h"
#include "base/workers.h"
#include "frame/frame.h"
#include "kvserve/codec.h"
#include "pipeline/chain.h"
#include "pipeline/dropped_tokens.h"
#include "pipeline/fast_decoder.h"
#include "pipeline/stage_clock.h"
#include "stages/frame_artefact.h"
#include "stages/registry.h"
#include "stages/thread_limits.h"
#include "stages/without_throwing.h"

namespace kvserve {
namespace {

constexpr std::string_view kFrame = "frame";

// A section that is not there is empty; ReadFrame refuses unknown kinds and repeats.
SectionBytes FindSections(const FrameView& frame) {
  SectionBytes found;
  for (const Section& section : frame.sections) {
    switch (section.kind) {
      case SectionKind::kClasses: found.classes = section.bytes; break;
      case SectionKind::kSide: found.side = section.bytes; break;
      case SectionKind::kSymbols: found.symbols = section.bytes; break;
    }
  }
  return found;
}

Status CheckIdentity(const Fingerprint& wanted, const Fingerprint& found, const char* what) {
  if (wanted.empty() || wanted == found) return {};
  return MakeError(ErrorCode::kMismatch, "frame: " + std::string(what) + " is " + found.hex() +
                                             " where " + wanted.hex() + " is wanted");
}

Status CheckRawSize(const FrameHeader& header, std::uint64_t max_raw_bytes) {
  const std::uint64_t raw_bytes = RawBytes(header);
  if (raw_bytes <= max_raw_bytes) return {};
  return MakeError(ErrorCode::kResourceExhausted,
                   "frame: raw size of " + std::to_string(raw_bytes) +
                       " bytes is over the limit of " + std::to_string(max_raw_bytes));
}

// The planes of the frame as views without data. `geometry` outlives them.
void DescribePlanes(const FrameHeader& header, const KvGeometry& geometry, KvView& shapes) {
  shapes.geometry = &geometry;
  shapes.tokens = header.tokens;
  shapes.layers.clear();
  for (const FrameLayer& layer : header.layers) {
    PlaneView plane;
    plane.dtype = header.dtype;
    plane.tokens = layer.tokens.size();
    plane.heads = layer.geometry.kv_heads;
    LayerView view{layer.layer, layer.tokens, plane, plane};
    view.k.dim = layer.geometry.k_dim;
    view.v.dim = layer.geometry.v_dim;
    shapes.layers.push_back(view);
  }
}

// Chains of the profiles that came last; making one takes longer than decoding a small frame.
class RecentChains {
 public:
  // Valid until the next call.
  Result<const Chain*> Find(const FrameHeader& header) {
    auto found = std::find_if(entries_.begin(), entries_.end(),
                              [&](const Entry& entry) { return entry.stages == header.stages; });
    if (found == entries_.end()) {
      KVSERVE_ASSIGN(Chain chain, Chain::Create(header.stages, BuiltinStages(), header.dtype,
                                                Device::kHost, ProfileOrigin::kFrame));
      if (entries_.size() == kMost) entries_.pop_back();
      entries_.push_back({header.stages, std::move(chain)});
      found = entries_.end() - 1;
    }
    KVSERVE_TRY(found->chain.CheckDType(header.dtype, ProfileOrigin::kFrame));
    std::rotate(entries_.begin(), found, found + 1);
    return &entries_.front().chain;
  }

 private:
  static constexpr std::size_t kMost = 8;
  struct Entry {
    std::vector<StageSpec> stages;
    Chain chain;
  };
  std::vector<Entry> entries_;  // the latest first
};

}  // namespace

struct FrameDecoder::State {
  explicit State(CodecOptions given) : options(std::move(given)), workers(options.threads) {}

  Result<std::size_t> Decode(std::span<const std::byte> bytes, const DecodeOptions& decode,
                             KvBuffer& out, StageSeconds* seconds);
  Result<const KvView*> Resize(const FrameHeader& header, KvBuffer& out);

  CodecOptions options;
  Workers workers;
  Arena arena;
  FrameReader reader;
  RecentChains chains;
  FastDecoder decoder;
  DroppedTokens dropped;  // of the last frame
  KvGeometry geometry;
  KvView planes;
  std::vector<KvBuffer::LayerTokens> layers;
};

// For FastDecoder, which calls it when the sections are known to agree with the shapes: `planes`,
// which until then describe the shapes alone, point into `out` from here on.
Result<const KvView*> FrameDecoder::State::Resize(const FrameHeader& header, KvBuffer& out) {
  layers.clear();
  for (const FrameLayer& layer : header.layers) layers.push_back({layer.layer, layer.tokens});
  KVSERVE_TRY(out.Resize(geometry, header.tokens, layers));
  out.ViewInto(planes);
  return &planes;
}

Result<std::size_t> FrameDecoder::State::Decode(std::span<const std::byte> bytes,
                                                const DecodeOptions& decode, KvBuffer& out,
                                                StageSeconds* seconds) {
  dropped.Clear();
  const auto start = Clock::now();
  KVSERVE_ASSIGN(const FrameView* const frame, reader.Read(bytes));
  if (seconds != nullptr) AddSeconds(kFrame, SecondsSince(start), *seconds);
  const FrameHeader& header = frame->header;
  KVSERVE_TRY(CheckIdentity(decode.model, header.model, "model"));
  KVSERVE_TRY(CheckIdentity(decode.key, header.key, "key"));
  KVSERVE_ASSIGN(const Chain* const chain, chains.Find(header));
  KVSERVE_TRY(CheckArtefactNamed(header, *chain, options.calibration.get()));
  KVSERVE_TRY(CheckRawSize(header, decode.max_raw_bytes));
  ModelGeometry(header, geometry);
  FrameContext context;
  context.geometry = &geometry;
  context.tokens = header.tokens;
  context.prompt_tokens = header.prompt_tokens;
  context.arena = &arena;
  context.workers = &workers;
  context.dropped = &dropped;
  if (chain->needs_artefact()) {
    context.artefact = options.calibration.get();
    KVSERVE_TRY(CheckArtefactFits(header, *context.artefact));
  }
  DescribePlanes(header, geometry, planes);
  const auto resize = [&] { return Resize(header, out); };
  KVSERVE_TRY(
      decoder.Decode(*chain, FindSections(*frame), context, planes, std::ref(resize), seconds));
  return frame->frame_bytes;
}

Result<FrameDecoder> FrameDecoder::Create(CodecOptions options) {
  return WithoutThrowing([&]() -> Result<FrameDecoder> {
    KVSERVE_TRY(CheckThreads(options.threads));
    return FrameDecoder(std::make_unique<State>(std::move(options)));
  });
}

FrameDecoder::FrameDecoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
FrameDecoder::FrameDecoder(FrameDecoder&&) noexcept = default;
FrameDecoder& FrameDecoder::operator=(FrameDecoder&&) noexcept = default;
FrameDecoder::~FrameDecoder() = default;

Result<std::size_t> FrameDecoder::Decode(std::span<const std::byte> bytes,
                                         const DecodeOptions& options, KvBuffer& out,
                                         StageSeconds* seconds) {
  if (state_ == nullptr) {
    return MakeError(ErrorCode::kInvalidArgument, "this frame decoder has been moved from");
  }
  return WithoutThrowing([&] { return state_->Decode(bytes, options, out, seconds); });
}

std::span<const std::uint8_t> FrameDecoder::dropped() const {
  if (state_ == nullptr || !state_->dropped.any()) return {};
  return state_->dropped.common();
}

bool FrameDecoder::partly_dropped() const {
  return state_ != nullptr && state_->dropped.partly();
}

}  // namespace kvserve
