// The quantizer there counts levels in *_max_value, takes `hybrid_ratio` (older tables:
// `heads_selection`) as the share of heads, or of layers from the end, at the low ones, and has no
// token apart. Source: github.com/hpdps-group/KVServe, its profile and configuration files.
#include "published_profile.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/try.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

tl::unexpected<Error> Wrong(const std::string& message) {
  return MakeError(ErrorCode::kInvalidArgument, message);
}

// The value of a key of an object, or null.
const Json& At(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : null;
}

void Collect(const Json& document, std::vector<const Json*>& profiles) {
  if (document.is_array()) {
    for (const Json& item : document) Collect(item, profiles);
    return;
  }
  if (!document.is_object()) return;
  if (document.contains("quantizer_config") || document.contains("high_key_max_value")) {
    profiles.push_back(&document);
    return;
  }
  for (const char* key : {"compression_config", "pareto_profiles", "accuracy_buckets"}) {
    Collect(At(document, key), profiles);
  }
}

// One profile in parts, whichever form it has. A flat row has everything in one object.
struct Parts {
  const Json* transform;
  const Json* quantizer;
  const Json* codec;
};

bool InPipeline(const Json& profile, std::initializer_list<std::string_view> names) {
  const Json& pipeline = At(profile, "pipeline");
  if (!pipeline.is_array()) return true;
  for (const Json& item : pipeline) {
    for (const std::string_view name : names) {
      if (item.is_string() && item.get<std::string>() == name) return true;
    }
  }
  return false;
}

Parts PartsOf(const Json& profile) {
  static const Json null;
  const bool flat = profile.contains("high_key_max_value");
  const auto part = [&](const char* key, std::initializer_list<std::string_view> names) {
    if (flat) return &profile;
    return InPipeline(profile, names) ? &At(profile, key) : &null;
  };
  return {part("transformer_config", {"transformer", "transform"}),
          part("quantizer_config", {"quantizer", "quantize"}), part("codec_config", {"codec"})};
}

// A part that is left out without a word would be another profile.
Status CheckParts(const Json& profile) {
  constexpr std::string_view kNames[] = {"transformer", "transform", "quantizer", "quantize",
                                         "codec"};
  const Json& pipeline = At(profile, "pipeline");
  if (!pipeline.is_null() && !pipeline.is_array()) return Wrong("pipeline should be a list");
  for (const Json& item : pipeline) {
    const bool known = std::ranges::any_of(kNames, [&](auto name) { return item == name; });
    if (!known)
      return Wrong("pipeline: " + item.dump() + " is not transformer, quantizer or codec");
  }
  for (const char* part : {"transformer_config", "quantizer_config", "codec_config"}) {
    const Json& config = At(profile, part);
    if (!config.is_null() && !config.is_object())
      return Wrong(std::string(part) + " should be an object");
  }
  return {};
}

Result<std::uint32_t> Levels(const Json& quantizer, const char* key) {
  const Json& value = At(quantizer, key);
  if (!value.is_number() || value.get<double>() < 2 || value.get<double>() > 256 ||
      value.get<double>() != std::floor(value.get<double>())) {
    return Wrong(std::string(key) + " should be a number of levels in 2..256");
  }
  return value.get<std::uint32_t>();
}

// By name, or as the dimensions of [batch, head, token, dim] that share a range.
Result<std::string> Axis(const Json& quantizer, const char* key, const char* usual) {
  const Json& value = At(quantizer, key);
  if (value.is_null()) return std::string(usual);
  if (value == "channel" || value == Json::array({2})) return std::string("channel");
  if (value == "token" || value == Json::array({1, 3})) return std::string("token");
  if (value == "tensor" || value == Json::array({1, 2, 3})) return std::string("tensor");
  return Wrong(std::string(key) + "=" + value.dump() + " is not channel, token or tensor");
}

// A seed may be text in hexadecimal. Ours has 31 bits, and other signs for the same seed anyway.
std::string SeedText(const Json& value) {
  std::uint64_t seed = 0;
  if (value.is_number_unsigned()) seed = value.get<std::uint64_t>();
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    const bool hexadecimal = text.rfind("0x", 0) == 0;
    if (hexadecimal) text.erase(0, 2);
    std::from_chars(text.data(), text.data() + text.size(), seed, hexadecimal ? 16 : 10);
  }
  seed &= 0x7FFFFFFF;
  return seed == 0 ? "" : ":seed=" + std::to_string(seed);
}

Result<std::string> TransformText(const Parts& parts, ImportedProfile& imported) {
  if (At(*parts.quantizer, "impl") == "tilelang_fused") {
    imported.lost.emplace_back("the signs of its seed");
    return "hadamard" + SeedText(At(*parts.quantizer, "base_seed")) + "|";
  }
  const Json& type = At(*parts.transform, "transform_type");
  if (type.is_null() || type == "none") return std::string();
  if (type != "hadamard")
    return Wrong("transform_type=" + type.dump() + " is not none or hadamard");
  imported.lost.emplace_back("the signs of its seed");
  return "hadamard" + SeedText(At(*parts.transform, "seed")) + "|";
}

std::string Pair(const std::string& option, std::uint32_t k, std::uint32_t v) {
  const std::string name = option + "=";
  if (k == v) return "," + name + std::to_string(k);
  return ",k_" + name + std::to_string(k) + ",v_" + name + std::to_string(v);
}

// Layers of the models that the artifact has profiles of.
std::uint32_t LayersOf(const Json& model) {
  constexpr std::pair<std::string_view, std::uint32_t> kLayers[] = {
      {"Llama-3.1-8B-Instruct", 32}, {"Qwen2.5-7B-Instruct", 28}, {"Qwen2.5-32B-Instruct", 64}};
  for (const auto& [name, layers] : kLayers) {
    if (model == name) return layers;
  }
  return 0;
}

struct Quantization {
  std::uint32_t high_k, high_v, low_k, low_v;
  double low_share;
  std::string axes;  // options
};

Result<Quantization> ReadQuantization(const Json& config) {
  Quantization q{};
  KVSERVE_ASSIGN(q.high_k, Levels(config, "high_key_max_value"));
  KVSERVE_ASSIGN(q.high_v, Levels(config, "high_value_max_value"));
  const char* const share = config.contains("hybrid_ratio") ? "hybrid_ratio" : "heads_selection";
  if (const Json& value = At(config, share); !value.is_null()) {
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= 1)) {
      return Wrong(std::string(share) + " should be a share in 0..1");
    }
    q.low_share = value.get<double>();
  }
  q.low_k = q.high_k;
  q.low_v = q.high_v;
  if (q.low_share > 0) {
    KVSERVE_ASSIGN(q.low_k, Levels(config, "low_key_max_value"));
    KVSERVE_ASSIGN(q.low_v, Levels(config, "low_value_max_value"));
  }
  KVSERVE_ASSIGN(const std::string k_axis, Axis(config, "axis_key", "channel"));
  KVSERVE_ASSIGN(const std::string v_axis, Axis(config, "axis_value", "token"));
  if (k_axis != "channel") q.axes += ",k_axis=" + k_axis;
  if (v_axis != "token") q.axes += ",v_axis=" + v_axis;
  return q;
}

Result<std::string> QuantizerText(const Json& config, ImportedProfile& imported) {
  if (config.is_null()) return std::string("none");
  KVSERVE_ASSIGN(const Quantization q, ReadQuantization(config));
  const std::string rest = q.axes + ",raw_first=false,grids=float16";
  if (q.low_share == 0 || (q.low_k == q.high_k && q.low_v == q.high_v)) {
    return "uniform:" + Pair("levels", q.high_k, q.high_v).substr(1) + rest;
  }
  const std::string high = "mixed:" + Pair("levels", q.high_k, q.high_v).substr(1);
  const Json& split = At(config, "split_type");
  if (split == "layer") {
    const std::uint32_t layers = LayersOf(At(config, "model_name"));
    if (layers == 0)
      return Wrong("split_type=layer of a model whose number of layers is not known");
    const auto low = static_cast<std::uint32_t>(std::lround(q.low_share * layers));
    return high + Pair("last_layers", low, low) + Pair("last_levels", q.low_k, q.low_v) + rest;
  }
  if (!split.is_null() && split != "head") {
    return Wrong("split_type=" + split.dump() + " is not head or layer");
  }
  imported.lost.emplace_back("its head scores (the calibration artefact's are taken)");
  std::array<char, 32> share{};
  const auto end = std::to_chars(share.data(), share.data() + share.size(), q.low_share).ptr;
  return high + Pair("low_levels", q.low_k, q.low_v) +
         ",low_share=" + std::string(share.data(), end) + rest;
}

Result<std::string> CodecText(const Json& config, ImportedProfile& imported) {
  const Json& algorithm = At(config, "nvcomp_algorithm");
  const Json& type = At(config, "codec_type");
  if (algorithm.is_null() && type.is_null()) {  // rows of tables name none and mean ANS
    return std::string(config.is_null() ? "bitpack" : "rans");
  }
  constexpr std::pair<std::string_view, std::string_view> kSame[] = {
      {"ANS", "rans"}, {"LZ4", "lz4"}, {"Zstd", "zstd"}};
  const std::string name = algorithm.is_string() ? algorithm.get<std::string>() : type.dump();
  for (const auto& [theirs, ours] : kSame) {
    if (name == theirs) return std::string(ours);
  }
  std::string ours = name == "Bitcomp" ? "bitpack" : "rans";
  imported.lost.push_back("codec " + name + " (" + ours + " in its place)");
  return ours;
}

}  // namespace

bool IsPublishedProfile(const Json& document) {
  std::vector<const Json*> profiles;
  Collect(document, profiles);
  return !profiles.empty();
}

Result<ImportedProfile> ImportPublishedProfile(const Json& document) {
  std::vector<const Json*> profiles;
  Collect(document, profiles);
  if (profiles.size() != 1) {
    return Wrong("holds " + std::to_string(profiles.size()) +
                 " profiles of the published form; take one out");
  }
  const Json& profile = *profiles.front();
  ImportedProfile imported;
  if (At(profile, "enabled") == false) {
    imported.text = "none";
    return imported;
  }
  KVSERVE_TRY(CheckParts(profile));
  const Parts parts = PartsOf(profile);
  KVSERVE_ASSIGN(const std::string transform, TransformText(parts, imported));
  KVSERVE_ASSIGN(const std::string quantizer, QuantizerText(*parts.quantizer, imported));
  KVSERVE_ASSIGN(const std::string codec, CodecText(*parts.codec, imported));
  const Json& least = At(profile, "min_compress_size");
  if (least.is_number() && least.get<double>() > 0) imported.lost.emplace_back("min_compress_size");
  imported.text = transform + quantizer + "|" + codec;
  return imported;
}

}  // namespace kvserve::tool
