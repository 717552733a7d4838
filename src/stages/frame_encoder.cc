// Encoding in the frame's wire format: the built-in stages over the fast executor.
#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <optional>
#include <utility>

#include "base/arena.h"
#include "base/clock.h"
#include "base/try.h"
#include "base/workers.h"
#include "frame/frame.h"
#include "kvserve/codec.h"
#include "pipeline/chain.h"
#include "pipeline/fast_encoder.h"
#include "pipeline/frame_queries.h"
#include "pipeline/reference_executor.h"
#include "pipeline/stage_clock.h"
#include "stages/drift_guard.h"
#include "stages/frame_artefact.h"
#include "stages/registry.h"
#include "stages/single_plane.h"
#include "stages/thread_limits.h"
#include "stages/without_throwing.h"

namespace kvserve {
namespace {

constexpr std::string_view kFrame = "frame";
constexpr std::string_view kGuard = "drift guard";

// Everything but the stages, which stay.
void FillHeader(const ConstKvView& view, const EncodeOptions& options, FrameHeader& header) {
  header.dtype = view.geometry->dtype;
  header.model_layers = static_cast<std::uint32_t>(view.geometry->layers.size());
  header.tokens = view.tokens;
  header.prompt_tokens = options.prompt_tokens;
  header.model = options.model;
  header.key = options.key;
  header.layers.clear();
  for (const auto& layer : view.layers) {
    header.layers.push_back({layer.layer, view.geometry->layers[layer.layer], layer.tokens});
  }
}

Status CheckInput(const ConstKvView& view) {
  KVSERVE_TRY(CheckView(view));
  if (view.device != Device::kHost) {
    return MakeError(ErrorCode::kUnsupported, "only KV in host memory can be encoded");
  }
  return {};
}

}  // namespace

struct RequestMemory::State {
  std::vector<StageSpec> stages;  // of the profile
  EncoderMemory memory;
  std::optional<DriftMemory> drift;  // of guarded encoders
};

RequestMemory::RequestMemory(std::unique_ptr<State> state) : state_(std::move(state)) {}
RequestMemory::RequestMemory(RequestMemory&&) noexcept = default;
RequestMemory& RequestMemory::operator=(RequestMemory&&) noexcept = default;
RequestMemory::~RequestMemory() = default;

bool RequestMemory::looks_back() const {
  return state_ != nullptr &&
         (state_->drift.has_value() ||
          std::any_of(state_->memory.selectors.begin(), state_->memory.selectors.end(),
                      [](const auto& memory) { return memory != nullptr; }));
}

struct FrameEncoder::State {
  State(const Profile& with, Chain made, CodecOptions given)
      : profile(with), chain(std::move(made)), options(std::move(given)), workers(options.threads) {
    header.stages = profile.stages;
  }

  Status Encode(const ConstKvView& view, const EncodeOptions& encode, RequestMemory::State* request,
                std::vector<std::byte>& out, StageSeconds* seconds);
  Status Write(std::vector<std::byte>& out);

  // Encodes by the fallback profile if the frame just coded is unlike what the artefact expects.
  Status GuardDrift(const ConstKvView& view, const EncodeOptions& encode, DriftMemory* memory,
                    std::vector<std::byte>& out, StageSeconds* seconds);

  Profile profile;
  Chain chain;
  CodecOptions options;
  Workers workers;
  Arena arena;
  FastEncoder encoder;
  FrameHeader header;
  CodedSections coded;
  std::atomic<std::uint64_t> clamped_values{0};  // of the last frame, as is drift
  FrameDrift drift;
  std::optional<DriftGuard> guard;
  std::optional<FrameEncoder> fallback;  // there with the guard
};

Status FrameEncoder::State::Encode(const ConstKvView& view, const EncodeOptions& encode,
                                   RequestMemory::State* request, std::vector<std::byte>& out,
                                   StageSeconds* seconds) {
  clamped_values = 0;
  drift = {};
  KVSERVE_TRY(CheckInput(view));
  KVSERVE_TRY(chain.CheckDType(view.geometry->dtype, ProfileOrigin::kCaller));
  KVSERVE_TRY(CheckSplitSettings(profile, *view.geometry));
  KVSERVE_TRY(CheckQueries(chain, view, encode.queries));
  FillHeader(view, encode, header);
  FrameContext context;
  context.geometry = view.geometry;
  context.tokens = view.tokens;
  context.prompt_tokens = encode.prompt_tokens;
  context.arena = &arena;
  context.workers = &workers;
  context.clamped_values = &clamped_values;
  if (chain.query_selector() != nullptr) context.queries = encode.queries;
  if (chain.needs_artefact()) {
    context.artefact = options.calibration.get();
    header.artefact = context.artefact->fingerprint();
    KVSERVE_TRY(CheckArtefactServes(header, *context.artefact));
  }
  EncoderMemory* const memory = request == nullptr ? nullptr : &request->memory;
  KVSERVE_TRY(encoder.Encode(chain, view, context, coded, seconds, memory));
  if (guard) {
    DriftMemory* const seen = request == nullptr || !request->drift ? nullptr : &*request->drift;
    KVSERVE_TRY(GuardDrift(view, encode, seen, out, seconds));
    if (drift.fell_back) return {};
  }
  const auto start = Clock::now();
  Status status = Write(out);
  if (seconds != nullptr) AddSeconds(kFrame, SecondsSince(start), *seconds);
  return status;
}

Status FrameEncoder::State::GuardDrift(const ConstKvView& view, const EncodeOptions& encode,
                                       DriftMemory* memory, std::vector<std::byte>& out,
                                       StageSeconds* seconds) {
  const auto start = Clock::now();
  auto judged = guard->Judge(view, encode.prompt_tokens,
                             coded.classes.size() + coded.symbols.size(), memory, arena);
  if (!judged) return tl::unexpected(judged.error());
  if (seconds != nullptr) AddSeconds(kGuard, SecondsSince(start), *seconds);
  if (!judged->reason.empty()) {
    EncodeOptions other = encode;
    other.request = nullptr;  // of this encoder's profile
    KVSERVE_TRY(fallback->Encode(view, other, out, seconds));
    clamped_values = fallback->clamped_values();
    judged->fell_back = true;
  }
  drift = std::move(*judged);
  return {};
}

// Sections without bytes are left out.
Status FrameEncoder::State::Write(std::vector<std::byte>& out) {
  const Section all[] = {{SectionKind::kClasses, coded.classes},
                         {SectionKind::kSide, coded.side},
                         {SectionKind::kSymbols, coded.symbols}};
  std::array<Section, std::size(all)> sections;
  std::size_t count = 0;
  for (const Section& section : all) {
    if (!section.bytes.empty()) sections[count++] = section;
  }
  return WriteFrame(header, std::span(sections).first(count), out);
}

Result<FrameEncoder> FrameEncoder::Create(const Profile& profile, CodecOptions options) {
  return WithoutThrowing([&]() -> Result<FrameEncoder> {
    KVSERVE_TRY(CheckThreads(options.threads));
    // Stages see the dtype of each frame; Encode checks it.
    KVSERVE_ASSIGN(Chain chain, Chain::Create(profile.stages, BuiltinStages(), DType::kFloat16,
                                              Device::kHost, ProfileOrigin::kCaller));
    KVSERVE_TRY(CheckArtefactGiven(chain, options.calibration.get()));
    auto state = std::make_unique<State>(profile, std::move(chain), options);
    if (!options.fallback.stages.empty() && state->chain.needs_artefact()) {
      KVSERVE_ASSIGN(state->guard, DriftGuard::Create(profile, *options.calibration));
      // Without an artefact, so that it is refused if it needs one.
      KVSERVE_ASSIGN(state->fallback,
                     FrameEncoder::Create(options.fallback, {.threads = options.threads}));
    }
    return FrameEncoder(std::move(state));
  });
}

FrameEncoder::FrameEncoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
FrameEncoder::FrameEncoder(FrameEncoder&&) noexcept = default;
FrameEncoder& FrameEncoder::operator=(FrameEncoder&&) noexcept = default;
FrameEncoder::~FrameEncoder() = default;

Status FrameEncoder::Encode(const ConstKvView& view, const EncodeOptions& options,
                            std::vector<std::byte>& out, StageSeconds* seconds) {
  if (state_ == nullptr) {
    return MakeError(ErrorCode::kInvalidArgument, "this frame encoder has been moved from");
  }
  RequestMemory::State* request = nullptr;
  if (options.request != nullptr) {
    request = options.request->state_.get();
    if (request == nullptr || request->stages != state_->profile.stages) {
      return MakeError(ErrorCode::kInvalidArgument, "the request memory is of another profile");
    }
  }
  return WithoutThrowing([&] { return state_->Encode(view, options, request, out, seconds); });
}

RequestMemory FrameEncoder::NewRequest() const {
  if (state_ == nullptr) return RequestMemory(nullptr);
  return RequestMemory(std::make_unique<RequestMemory::State>(RequestMemory::State{
      state_->profile.stages, NewEncoderMemory(state_->chain),
      state_->guard ? std::optional<DriftMemory>(std::in_place) : std::nullopt}));
}

std::uint64_t FrameEncoder::clamped_values() const {
  return state_ == nullptr ? 0 : state_->clamped_values.load();
}

const FrameDrift& FrameEncoder::drift() const {
  static const FrameDrift none;
  return state_ == nullptr ? none : state_->drift;
}

}  // namespace kvserve
