// The public codec: the built-in stages over the reference executor, in the frame's wire format.
#include <algorithm>
#include <exception>
#include <string>

#include "base/clock.h"
#include "base/hash.h"
#include "base/try.h"
#include "frame/frame.h"
#include "kvserve/codec.h"
#include "pipeline/chain.h"
#include "pipeline/profile_text.h"
#include "pipeline/reference_executor.h"
#include "stages/registry.h"

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

FrameContext MakeContext(const KvGeometry& geometry, TokenRange tokens,
                         std::uint32_t prompt_tokens) {
  FrameContext context;
  context.geometry = &geometry;
  context.tokens = tokens;
  context.prompt_tokens = prompt_tokens;
  return context;
}

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

Result<FrameView> ReadTimed(std::span<const std::byte> bytes, StageSeconds* seconds) {
  const auto start = Clock::now();
  auto frame = ReadFrame(bytes);
  if (seconds != nullptr) (*seconds)[kFrame] += SecondsSince(start);
  return frame;
}

// The planes of the frame as views without data. `geometry` outlives them.
KvView ShapesOf(const FrameHeader& header, const KvGeometry& geometry) {
  KvView shapes;
  shapes.geometry = &geometry;
  shapes.tokens = header.tokens;
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
  return shapes;
}

Result<KvView> ResizeFor(const FrameHeader& header, const KvGeometry& geometry, KvBuffer& out) {
  std::vector<KvBuffer::LayerTokens> layers;
  for (const FrameLayer& layer : header.layers) layers.push_back({layer.layer, layer.tokens});
  KVSERVE_TRY(out.Resize(geometry, header.tokens, layers));
  return out.view();
}

Status Encode(const ConstKvView& view, const Profile& profile, const EncodeOptions& options,
              std::vector<std::byte>& out, StageSeconds* seconds) {
  KVSERVE_TRY(CheckView(view));
  if (view.device != Device::kHost) {
    return MakeError(ErrorCode::kUnsupported, "only KV in host memory can be encoded");
  }
  KVSERVE_ASSIGN(const Chain chain,
                 Chain::Create(profile.stages, BuiltinStages(), view.geometry->dtype, view.device,
                               ProfileOrigin::kCaller));
  const FrameContext context = MakeContext(*view.geometry, view.tokens, options.prompt_tokens);
  CodedSections coded;
  KVSERVE_TRY(EncodePlanes(chain, view, context, coded, seconds));
  const Section all[] = {{SectionKind::kClasses, coded.classes},
                         {SectionKind::kSide, coded.side},
                         {SectionKind::kSymbols, coded.symbols}};
  std::vector<Section> sections;
  std::copy_if(std::begin(all), std::end(all), std::back_inserter(sections),
               [](const Section& section) { return !section.bytes.empty(); });
  const auto start = Clock::now();
  Status status = WriteFrame(MakeHeader(view, profile, options), sections, out);
  if (seconds != nullptr) (*seconds)[kFrame] += SecondsSince(start);
  return status;
}

Result<std::size_t> Decode(std::span<const std::byte> bytes, const DecodeOptions& options,
                           KvBuffer& out, StageSeconds* seconds) {
  KVSERVE_ASSIGN(const FrameView frame, ReadTimed(bytes, seconds));
  const FrameHeader& header = frame.header;
  KVSERVE_TRY(CheckIdentity(options.model, header.model, "model"));
  KVSERVE_TRY(CheckIdentity(options.key, header.key, "key"));
  if (!header.artefact.empty()) {
    return MakeError(ErrorCode::kUnsupported, "frame: needs calibration artefact " +
                                                  header.artefact.hex() +
                                                  ", and this build reads none");
  }
  const SectionBytes sections = FindSections(frame);
  KVSERVE_ASSIGN(const Chain chain, Chain::Create(header.stages, BuiltinStages(), header.dtype,
                                                  Device::kHost, ProfileOrigin::kFrame));
  KVSERVE_TRY(CheckRawSize(header, options.max_raw_bytes));
  const KvGeometry geometry = ModelGeometry(header);
  const FrameContext context = MakeContext(geometry, header.tokens, header.prompt_tokens);
  KVSERVE_TRY(DecodePlanes(
      chain, sections, context, ShapesOf(header, geometry),
      [&] { return ResizeFor(header, geometry, out); }, seconds));
  return frame.frame_bytes;
}

// The library does not throw: a container that finds no memory is an error like any other.
template <typename Work>
auto WithoutThrowing(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {  // bad_alloc or length_error
    return MakeError(ErrorCode::kResourceExhausted, std::string("no memory: ") + error.what());
  }
}

}  // namespace

Result<Profile> ParseProfile(std::string_view text) {
  return ParseProfileText(text, BuiltinStages());
}

Status EncodeFrame(const ConstKvView& view, const Profile& profile, const EncodeOptions& options,
                   std::vector<std::byte>& out, StageSeconds* seconds) {
  return WithoutThrowing([&] { return Encode(view, profile, options, out, seconds); });
}

Result<std::size_t> DecodeFrame(std::span<const std::byte> bytes, const DecodeOptions& options,
                                KvBuffer& out, StageSeconds* seconds) {
  return WithoutThrowing([&] { return Decode(bytes, options, out, seconds); });
}

Fingerprint PrefixKey(const Fingerprint& model, std::span<const std::int32_t> tokens) {
  return Hash128(std::as_bytes(tokens), Hash64(std::as_bytes(std::span(model.bytes))));
}

}  // namespace kvserve
