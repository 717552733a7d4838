// What a node says of itself as bytes, and what two such statements have in common.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "base/byte_io.h"
#include "base/try.h"
#include "net/handshake.h"
#include "net/refusal.h"
#include "net/wire_fields.h"

namespace kvserve {
namespace {

constexpr std::size_t kMaxVersionText = 64;
constexpr std::size_t kMaxStages = 4096;

std::string Hex(std::uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

std::string RoleName(NodeRole role) {
  switch (role) {
    case NodeRole::kPrefill: return "prefill";
    case NodeRole::kDecode: return "decode";
    case NodeRole::kStore: return "store";
  }
  return "unknown";
}

// A store keeps the frames of any model.
bool HasModel(const Hello& hello) {
  return hello.role != NodeRole::kStore;
}

Status CheckHello(const Hello& hello, ErrorCode code) {
  const auto fail = [&](const std::string& what) { return MakeError(code, "hello: " + what); };
  if (hello.version.empty() || hello.version.size() > kMaxVersionText ||
      !IsPrintable(hello.version)) {
    return fail("version is not 1 to 64 printable characters");
  }
  if (RoleName(hello.role) == "unknown") {
    return fail("role " + std::to_string(static_cast<unsigned>(hello.role)) + " is unknown");
  }
  if (hello.epoch == 0) return fail("epoch is 0");
  if (hello.stages.size() > kMaxStages) {
    return fail(std::to_string(hello.stages.size()) + " stages are above the limit of " +
                std::to_string(kMaxStages));
  }
  if (!HasModel(hello) && hello.geometry.layers.empty()) return {};
  if (auto status = CheckGeometry(hello.geometry); !status) return fail(status.error().message);
  return {};
}

void PutLayer(ByteWriter& out, const LayerGeometry& layer) {
  out.Put(layer.kv_heads);
  out.Put(layer.k_dim);
  out.Put(layer.v_dim);
  out.Put(layer.window_tokens);
  out.Put(static_cast<std::uint8_t>(layer.rope_style));
  out.Put(layer.rope_theta);
}
constexpr std::size_t kLayerBytes = 21;

Result<LayerGeometry> GetLayer(ByteReader& in) {
  LayerGeometry layer;
  KVSERVE_ASSIGN(layer.kv_heads, in.Get<std::uint32_t>());
  KVSERVE_ASSIGN(layer.k_dim, in.Get<std::uint32_t>());
  KVSERVE_ASSIGN(layer.v_dim, in.Get<std::uint32_t>());
  KVSERVE_ASSIGN(layer.window_tokens, in.Get<std::uint32_t>());
  KVSERVE_ASSIGN(const auto style, in.Get<std::uint8_t>());
  layer.rope_style = static_cast<RopeStyle>(style);
  KVSERVE_ASSIGN(layer.rope_theta, in.Get<float>());
  return layer;
}

// A count that what is left can hold, so that nothing is allocated on the peer's word.
Result<std::size_t> GetCount(ByteReader& in, std::size_t element_bytes, std::size_t limit) {
  KVSERVE_ASSIGN(const auto count, in.Get<std::uint32_t>());
  if (count > limit || in.remaining() / element_bytes < count) {
    return MakeError(ErrorCode::kCorruptData,
                     "hello: a list of " + std::to_string(count) + " entries does not fit");
  }
  return count;
}

Status GetGeometry(ByteReader& in, KvGeometry& geometry) {
  KVSERVE_ASSIGN(const auto dtype, in.Get<std::uint8_t>());
  geometry.dtype = static_cast<DType>(dtype);
  KVSERVE_ASSIGN(const auto layers, GetCount(in, kLayerBytes, kMaxLayers));
  geometry.layers.reserve(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    KVSERVE_ASSIGN(const auto layer, GetLayer(in));
    geometry.layers.push_back(layer);
  }
  return {};
}

Status GetStages(ByteReader& in, std::vector<StageVersion>& stages) {
  KVSERVE_ASSIGN(const auto count, GetCount(in, 3, kMaxStages));
  stages.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    StageVersion stage;
    KVSERVE_ASSIGN(stage.id, in.Get<std::uint16_t>());
    KVSERVE_ASSIGN(stage.version, in.Get<std::uint8_t>());
    if (!stages.empty() && stages.back().id >= stage.id) {
      return MakeError(ErrorCode::kCorruptData, "hello: stage ids do not ascend");
    }
    stages.push_back(stage);
  }
  return {};
}

std::optional<Refusal> FeatureConflict(const Hello& local, const Hello& peer) {
  if ((local.required_features & ~peer.features) != 0) {
    return Refusal{ErrorCode::kUnsupported, "feature bits",
                   Hex(local.required_features) + " required", Hex(peer.features) + " understood"};
  }
  if ((peer.required_features & ~local.features) != 0) {
    return Refusal{ErrorCode::kUnsupported, "feature bits", Hex(local.features) + " understood",
                   Hex(peer.required_features) + " required"};
  }
  return std::nullopt;
}

std::optional<Refusal> GeometryConflict(const KvGeometry& local, const KvGeometry& peer) {
  const auto differ = [](const std::string& field, const auto& here, const auto& there) {
    return Refusal{ErrorCode::kMismatch, "geometry: " + field, std::to_string(here),
                   std::to_string(there)};
  };
  if (local.layers.size() != peer.layers.size()) {
    return differ("layers", local.layers.size(), peer.layers.size());
  }
  for (std::size_t i = 0; i < local.layers.size(); ++i) {
    const LayerGeometry& a = local.layers[i];
    const LayerGeometry& b = peer.layers[i];
    const std::string layer = "layer " + std::to_string(i) + " ";
    if (a.kv_heads != b.kv_heads) return differ(layer + "kv_heads", a.kv_heads, b.kv_heads);
    if (a.k_dim != b.k_dim) return differ(layer + "k_dim", a.k_dim, b.k_dim);
    if (a.v_dim != b.v_dim) return differ(layer + "v_dim", a.v_dim, b.v_dim);
    if (a.window_tokens != b.window_tokens) {
      return differ(layer + "window_tokens", a.window_tokens, b.window_tokens);
    }
    if (a.rope_style != b.rope_style) {
      return differ(layer + "rope_style", static_cast<unsigned>(a.rope_style),
                    static_cast<unsigned>(b.rope_style));
    }
    if (a.rope_theta != b.rope_theta)
      return differ(layer + "rope_theta", a.rope_theta, b.rope_theta);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> FindConflict(const Hello& local, const Hello& peer) {
  const auto differ = [](const char* field, const std::string& here, const std::string& there) {
    return Refusal{ErrorCode::kMismatch, field, here, there};
  };
  if (local.protocol != peer.protocol) {
    return differ("protocol", std::to_string(local.protocol), std::to_string(peer.protocol));
  }
  if (auto conflict = FeatureConflict(local, peer)) return conflict;
  if (local.frame_version != peer.frame_version) {
    return differ("frame version", std::to_string(local.frame_version),
                  std::to_string(peer.frame_version));
  }
  if (HasModel(local) && local.role == peer.role) {
    return differ("role", RoleName(local.role), RoleName(peer.role));
  }
  if (!HasModel(local) || !HasModel(peer)) return std::nullopt;
  if (local.geometry.dtype != peer.geometry.dtype) {
    return differ("dtype", std::string(DTypeName(local.geometry.dtype)),
                  std::string(DTypeName(peer.geometry.dtype)));
  }
  if (auto conflict = GeometryConflict(local.geometry, peer.geometry)) return conflict;
  if (local.model != peer.model) {
    return differ("model fingerprint", local.model.hex(), peer.model.hex());
  }
  return std::nullopt;
}

Result<Agreement> Negotiate(const Hello& local, const Hello& peer) {
  if (auto conflict = FindConflict(local, peer))
    return tl::unexpected<Error>(SenderError(*conflict));
  Agreement agreement;
  agreement.peer = peer;
  agreement.features = local.features & peer.features;
  auto ours = local.stages;
  auto theirs = peer.stages;
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  std::set_intersection(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                        std::back_inserter(agreement.stages));
  return agreement;
}

Status EncodeHello(const Hello& hello, std::vector<std::byte>& out) {
  KVSERVE_TRY(CheckHello(hello, ErrorCode::kInvalidArgument));
  auto stages = hello.stages;
  std::sort(stages.begin(), stages.end());
  for (std::size_t i = 1; i < stages.size(); ++i) {
    if (stages[i].id == stages[i - 1].id) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "hello: stage id " + std::to_string(stages[i].id) + " appears twice");
    }
  }
  ByteWriter writer(out);
  writer.Put(hello.protocol);
  PutText(writer, hello.version);
  writer.Put(hello.features);
  writer.Put(hello.required_features);
  writer.Put(hello.frame_version);
  writer.Put(static_cast<std::uint8_t>(hello.role));
  writer.Put(hello.epoch);
  writer.PutBytes(std::as_bytes(std::span(hello.model.bytes)));
  writer.Put(static_cast<std::uint8_t>(hello.geometry.dtype));
  writer.Put(static_cast<std::uint32_t>(hello.geometry.layers.size()));
  for (const auto& layer : hello.geometry.layers) PutLayer(writer, layer);
  writer.Put(static_cast<std::uint32_t>(stages.size()));
  for (const auto& stage : stages) {
    writer.Put(stage.id);
    writer.Put(stage.version);
  }
  return {};
}

Result<Hello> DecodeHello(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Hello hello;
  KVSERVE_ASSIGN(hello.protocol, reader.Get<std::uint16_t>());
  KVSERVE_ASSIGN(hello.version, GetText(reader, kMaxVersionText));
  KVSERVE_ASSIGN(hello.features, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(hello.required_features, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(hello.frame_version, reader.Get<std::uint16_t>());
  KVSERVE_ASSIGN(const auto role, reader.Get<std::uint8_t>());
  hello.role = static_cast<NodeRole>(role);
  KVSERVE_ASSIGN(hello.epoch, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(const auto model, reader.GetBytes(hello.model.bytes.size()));
  std::memcpy(hello.model.bytes.data(), model.data(), model.size());
  KVSERVE_TRY(GetGeometry(reader, hello.geometry));
  KVSERVE_TRY(GetStages(reader, hello.stages));
  KVSERVE_TRY(CheckConsumed(reader, "hello"));
  KVSERVE_TRY(CheckHello(hello, ErrorCode::kCorruptData));
  return hello;
}

}  // namespace kvserve
