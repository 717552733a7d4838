#include <array>
#include <cstring>
#include <string>

#include "base/byte_io.h"
#include "base/try.h"
#include "frame/layout.h"

namespace kvserve {
namespace {

// Reads header fields; every failure names the field and where it stands.
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) : in_(bytes) {}

  void set_place(std::string place) { place_ = std::move(place); }

  [[nodiscard]] Result<std::uint32_t> Varint(const char* field, std::uint32_t low,
                                             std::uint32_t high) {
    auto value = in_.GetVarint();
    if (!value) return Fail(field, value.error().message);
    if (*value < low || *value > high) {
      return Fail(field, std::to_string(*value) + " is outside " + std::to_string(low) + ".." +
                             std::to_string(high));
    }
    return static_cast<std::uint32_t>(*value);
  }
  template <typename T>
  [[nodiscard]] Result<T> Fixed(const char* field) {
    auto value = in_.Get<T>();
    if (!value) return Fail(field, value.error().message);
    return *value;
  }
  [[nodiscard]] Result<std::uint64_t> AnyVarint(const char* field) {
    auto value = in_.GetVarint();
    if (!value) return Fail(field, value.error().message);
    return *value;
  }
  [[nodiscard]] Result<Fingerprint> GetFingerprint(const char* field) {
    Fingerprint fingerprint;
    auto bytes = in_.GetBytes(fingerprint.bytes.size());
    if (!bytes) return Fail(field, bytes.error().message);
    std::memcpy(fingerprint.bytes.data(), bytes->data(), bytes->size());
    return fingerprint;
  }
  [[nodiscard]] tl::unexpected<Error> Fail(const char* field, const std::string& what) const {
    return MakeError(ErrorCode::kCorruptData, "frame header: " + place_ + field + " " + what);
  }
  [[nodiscard]] std::size_t remaining() const { return in_.remaining(); }

 private:
  ByteReader in_;
  std::string place_;  // e.g. "shape 3: "
};

Result<LayerShape> GetShape(FieldReader& in, TokenRange frame_tokens) {
  LayerShape shape;
  KVSERVE_ASSIGN(shape.geometry.kv_heads, in.Varint("kv_heads", 1, kMaxHeads));
  KVSERVE_ASSIGN(shape.geometry.k_dim, in.Varint("k_dim", 1, kMaxDim));
  KVSERVE_ASSIGN(shape.geometry.v_dim, in.Varint("v_dim", 0, kMaxDim));
  KVSERVE_ASSIGN(shape.geometry.window_tokens, in.Varint("window_tokens", 0, kMaxTokens));
  KVSERVE_ASSIGN(const auto style, in.Fixed<std::uint8_t>("rope_style"));
  if (style > static_cast<std::uint8_t>(RopeStyle::kHalves)) {
    return in.Fail("rope_style", std::to_string(style) + " is outside 0..2");
  }
  shape.geometry.rope_style = static_cast<RopeStyle>(style);
  if (shape.geometry.rope_style != RopeStyle::kNone) {
    KVSERVE_ASSIGN(shape.geometry.rope_theta, in.Fixed<float>("rope_theta"));
  }
  KVSERVE_ASSIGN(const auto offset, in.Varint("token offset", 0, frame_tokens.size()));
  KVSERVE_ASSIGN(const auto count, in.Varint("token count", 0, frame_tokens.size() - offset));
  shape.tokens.begin = frame_tokens.begin + offset;
  shape.tokens.end = shape.tokens.begin + count;
  return shape;
}

// Shapes cost at least seven bytes each and runs can add no more layers than the model has, so
// neither list outgrows its input or kMaxLayers.
Status GetLayers(FieldReader& in, FrameHeader& header) {
  header.layers.clear();
  KVSERVE_ASSIGN(const auto shape_count, in.Varint("shape count", 1, kMaxShapes));
  std::array<LayerShape, kMaxShapes> shapes;
  for (std::uint32_t i = 0; i < shape_count; ++i) {
    in.set_place("shape " + std::to_string(i) + ": ");
    KVSERVE_ASSIGN(shapes[i], GetShape(in, header.tokens));
  }
  in.set_place("");
  KVSERVE_ASSIGN(const auto run_count, in.Varint("run count", 1, header.model_layers));
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < run_count; ++i) {
    in.set_place("layer run " + std::to_string(i) + ": ");
    KVSERVE_ASSIGN(const auto skipped, in.Varint("skipped layers", 0, header.model_layers - next));
    next += skipped;
    KVSERVE_ASSIGN(const auto count, in.Varint("layer count", 1, header.model_layers - next));
    KVSERVE_ASSIGN(const auto shape, in.Varint("shape index", 0, shape_count - 1));
    for (std::uint32_t k = 0; k < count; ++k, ++next) {
      header.layers.push_back({next, shapes[shape].geometry, shapes[shape].tokens});
    }
  }
  in.set_place("");
  return {};
}

Result<double> GetParameterValue(FieldReader& in) {
  KVSERVE_ASSIGN(const std::uint64_t code, in.AnyVarint("parameter value"));
  if ((code & 1) == 0) {
    const std::uint64_t zigzag = code >> 1;
    const auto whole = static_cast<std::int64_t>((zigzag >> 1) ^ (~(zigzag & 1) + 1));
    return static_cast<double>(whole);
  }
  if (code != 1) return in.Fail("parameter value", "has the unknown tag " + std::to_string(code));
  return in.Fixed<double>("parameter value");
}

Status GetStages(FieldReader& in, FrameHeader& header) {
  KVSERVE_ASSIGN(const auto count, in.Varint("stage count", 0, kMaxStages));
  header.stages.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    in.set_place("stage " + std::to_string(i) + ": ");
    StageSpec& stage = header.stages[i];
    stage.parameters.clear();
    KVSERVE_ASSIGN(const auto id, in.Varint("id", 1, UINT16_MAX));
    stage.id = static_cast<std::uint16_t>(id);
    KVSERVE_ASSIGN(stage.version, in.Fixed<std::uint8_t>("version"));
    KVSERVE_ASSIGN(const auto parameters, in.Fixed<std::uint8_t>("parameter count"));
    for (std::uint32_t p = 0; p < parameters; ++p) {
      ParameterValue parameter;
      KVSERVE_ASSIGN(parameter.id, in.Fixed<std::uint8_t>("parameter id"));
      KVSERVE_ASSIGN(parameter.value, GetParameterValue(in));
      stage.parameters.push_back(parameter);
    }
  }
  in.set_place("");
  return {};
}

Status GetSections(FieldReader& in, SectionTable& table) {
  table.count = 0;
  KVSERVE_ASSIGN(const auto count, in.Fixed<std::uint8_t>("section count"));
  for (std::uint32_t i = 0; i < count; ++i) {
    in.set_place("section " + std::to_string(i) + ": ");
    SectionEntry entry;
    KVSERVE_ASSIGN(const auto kind, in.Fixed<std::uint8_t>("kind"));
    entry.kind = static_cast<SectionKind>(kind);
    if (SectionName(entry.kind) == "unknown") {
      return in.Fail("kind", std::to_string(kind) + " is unknown");
    }
    if (table.count > 0 && table.entries[table.count - 1].kind >= entry.kind) {
      return in.Fail("kind", std::to_string(kind) + " is out of order");
    }
    KVSERVE_ASSIGN(entry.bytes, in.AnyVarint("bytes"));
    KVSERVE_ASSIGN(entry.checksum, in.Fixed<std::uint64_t>("checksum"));
    table.entries[table.count++] = entry;
  }
  in.set_place("");
  return {};
}

Status GetIdentity(FieldReader& in, FrameHeader& header) {
  KVSERVE_ASSIGN(const auto flags, in.Fixed<std::uint8_t>("flags"));
  if ((flags & ~kFlagArtefact) != 0) {
    return in.Fail("flags", std::to_string(flags) + " has unknown bits");
  }
  KVSERVE_ASSIGN(const auto dtype, in.Fixed<std::uint8_t>("dtype"));
  header.dtype = static_cast<DType>(dtype);
  KVSERVE_TRY(CheckDTypeSupported(header.dtype));
  KVSERVE_ASSIGN(header.model_layers, in.Varint("model_layers", 1, kMaxLayers));
  KVSERVE_ASSIGN(header.tokens.begin, in.Varint("first token", 0, kMaxTokens));
  KVSERVE_ASSIGN(const auto tokens, in.Varint("token count", 0, kMaxTokens - header.tokens.begin));
  header.tokens.end = header.tokens.begin + tokens;
  KVSERVE_ASSIGN(header.prompt_tokens, in.Varint("prompt_tokens", 0, kMaxTokens));
  KVSERVE_ASSIGN(header.model, in.GetFingerprint("model fingerprint"));
  KVSERVE_ASSIGN(header.key, in.GetFingerprint("key fingerprint"));
  header.artefact = {};
  if ((flags & kFlagArtefact) != 0) {
    KVSERVE_ASSIGN(header.artefact, in.GetFingerprint("artefact fingerprint"));
  }
  return {};
}

}  // namespace

Status DecodeHeaderBody(std::span<const std::byte> body, std::uint16_t version,
                        std::uint64_t features, FrameHeader& header, SectionTable& sections) {
  FieldReader in(body);
  KVSERVE_TRY(GetIdentity(in, header));
  header.version = version;
  header.features = features;
  KVSERVE_TRY(GetLayers(in, header));
  KVSERVE_TRY(GetStages(in, header));
  KVSERVE_TRY(GetSections(in, sections));
  if (in.remaining() != 0) {
    return in.Fail("has", std::to_string(in.remaining()) + " bytes after its section table");
  }
  if (auto status = CheckHeader(header); !status) {
    const bool unsupported = status.error().code == ErrorCode::kUnsupported;
    return MakeError(unsupported ? ErrorCode::kUnsupported : ErrorCode::kCorruptData,
                     "frame header: " + status.error().message);
  }
  return {};
}

}  // namespace kvserve
