// Encoding in the frame's wire format: the built-in stages over the executor.
#include <algorithm>
#include <utility>

#include "base/arena.h"
#include "base/clock.h"
#include "base/try.h"
#include "base/workers.h"
#include "frame/frame.h"
#include "kvserve/codec.h"
#include "pipeline/chain.h"
#include "pipeline/reference_executor.h"
#include "stages/frame_artefact.h"
#include "stages/registry.h"
#include "stages/single_plane.h"
#include "stages/without_throwing.h"

namespace kvserve {
namespace {

constexpr const char* kFrame = "frame";

FrameHeader MakeHeader(const ConstKvView& view, const Profile& profile,
                       const EncodeOptions& options) {
  FrameHeader header;
  header.dtype = view.geometry->dtype;
  header.model_layers = static_cast<std::uint32_t>(view.geometry->layers.size());
  header.tokens = view.tokens;
  header.prompt_tokens = options.prompt_tokens;
  header.model = options.model;
  header.key = options.key;
  for (const auto& layer : view.layers) {
    header.layers.push_back({layer.layer, view.geometry->layers[layer.layer], layer.tokens});
  }
  header.stages = profile.stages;
  return header;
}

Status CheckInput(const ConstKvView& view) {
  KVSERVE_TRY(CheckView(view));
  if (view.device != Device::kHost) {
    return MakeError(ErrorCode::kUnsupported, "only KV in host memory can be encoded");
  }
  return CheckDTypeSupported(view.geometry->dtype);
}

}  // namespace

struct FrameEncoder::State {
  State(const Profile& with, Chain made, CodecOptions given)
      : profile(with),
        chain(std::move(made)),
        options(std::move(given)),
        workers(options.threads) {}

  Status Encode(const ConstKvView& view, const EncodeOptions& encode, std::vector<std::byte>& out,
                StageSeconds* seconds);

  Profile profile;
  Chain chain;
  CodecOptions options;
  Workers workers;
  Arena arena;
};

Status FrameEncoder::State::Encode(const ConstKvView& view, const EncodeOptions& encode,
                                   std::vector<std::byte>& out, StageSeconds* seconds) {
  KVSERVE_TRY(CheckInput(view));
  KVSERVE_TRY(CheckSplitSettings(profile, *view.geometry));
  FrameHeader header = MakeHeader(view, profile, encode);
  FrameContext context;
  context.geometry = view.geometry;
  context.tokens = view.tokens;
  context.prompt_tokens = encode.prompt_tokens;
  context.arena = &arena;
  context.workers = &workers;
  if (chain.needs_artefact()) {
    context.artefact = options.calibration.get();
    header.artefact = context.artefact->fingerprint();
    KVSERVE_TRY(CheckArtefactFits(header, *context.artefact));
  }
  arena.Reset();
  CodedSections coded;
  KVSERVE_TRY(EncodePlanes(chain, view, context, coded, seconds));
  const Section all[] = {{SectionKind::kClasses, coded.classes},
                         {SectionKind::kSide, coded.side},
                         {SectionKind::kSymbols, coded.symbols}};
  std::vector<Section> sections;
  std::copy_if(std::begin(all), std::end(all), std::back_inserter(sections),
               [](const Section& section) { return !section.bytes.empty(); });
  const auto start = Clock::now();
  Status status = WriteFrame(header, sections, out);
  if (seconds != nullptr) (*seconds)[kFrame] += SecondsSince(start);
  return status;
}

Result<FrameEncoder> FrameEncoder::Create(const Profile& profile, CodecOptions options) {
  return WithoutThrowing([&]() -> Result<FrameEncoder> {
    KVSERVE_TRY(CheckThreads(options.threads));
    // Stages see the dtype of each frame; Encode checks it.
    KVSERVE_ASSIGN(Chain chain, Chain::Create(profile.stages, BuiltinStages(), DType::kFloat16,
                                              Device::kHost, ProfileOrigin::kCaller));
    KVSERVE_TRY(CheckArtefactGiven(chain, options.calibration.get()));
    return FrameEncoder(std::make_unique<State>(profile, std::move(chain), options));
  });
}

FrameEncoder::FrameEncoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
FrameEncoder::FrameEncoder(FrameEncoder&&) noexcept = default;
FrameEncoder& FrameEncoder::operator=(FrameEncoder&&) noexcept = default;
FrameEncoder::~FrameEncoder() = default;

Status FrameEncoder::Encode(const ConstKvView& view, const EncodeOptions& options,
                            std::vector<std::byte>& out, StageSeconds* seconds) {
  return WithoutThrowing([&] { return state_->Encode(view, options, out, seconds); });
}

}  // namespace kvserve
