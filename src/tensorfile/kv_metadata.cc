#include "tensorfile/kv_metadata.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/try.h"

namespace kvserve {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kLayout = "token,head,dim";
constexpr std::array<std::string_view, 3> kRopeNames = {"none", "interleaved", "halves"};

tl::unexpected<Error> BadKey(std::string_view key, const std::string& problem) {
  return MakeError(ErrorCode::kBadInput, "metadata kvserve." + std::string(key) + " " + problem);
}

std::string Quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

// The value of "kvserve.<key>", or null.
const std::string* Find(const StringMap& metadata, std::string_view key) {
  const auto found = metadata.find("kvserve." + std::string(key));
  return found == metadata.end() ? nullptr : &found->second;
}

Result<std::uint32_t> ParseTokens(std::string_view key, std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > kMaxTokens) {
    return BadKey(key, Quoted(text) + " is not a number within 0.." + std::to_string(kMaxTokens));
  }
  return value;
}

// An array of `count` entries; discarded (no value) when the key is missing.
Result<Json> ParseList(const StringMap& metadata, std::string_view key, std::size_t count) {
  const std::string* const text = Find(metadata, key);
  if (text == nullptr) return Json(Json::value_t::discarded);
  Json list = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array() || list.size() != count) {
    return BadKey(key, "is not a JSON list of " + std::to_string(count));
  }
  return list;
}

Result<std::uint32_t> TokenOf(std::string_view key, const Json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxTokens) {
    return BadKey(key, "has an entry that is not within 0.." + std::to_string(kMaxTokens));
  }
  return value.get<std::uint32_t>();
}

Status ApplyTokens(const StringMap& metadata, KvFileInfo& info) {
  KVSERVE_ASSIGN(const Json first, ParseList(metadata, "first_token", info.geometry.layers.size()));
  for (std::size_t i = 0; i < info.layer_tokens.size() && !first.is_discarded(); ++i) {
    KVSERVE_ASSIGN(const std::uint32_t begin, TokenOf("first_token", first[i]));
    TokenRange& tokens = info.layer_tokens[i];
    tokens = {begin, begin + tokens.size()};
  }
  KVSERVE_ASSIGN(const Json range, ParseList(metadata, "tokens", 2));
  if (!range.is_discarded()) {
    KVSERVE_ASSIGN(info.tokens.begin, TokenOf("tokens", range[0]));
    KVSERVE_ASSIGN(info.tokens.end, TokenOf("tokens", range[1]));
  } else {
    info.tokens = info.layer_tokens[0];
    for (const TokenRange& tokens : info.layer_tokens) {
      info.tokens.begin = std::min(info.tokens.begin, tokens.begin);
      info.tokens.end = std::max(info.tokens.end, tokens.end);
    }
  }
  if (info.tokens.end < info.tokens.begin || info.tokens.end > kMaxTokens) {
    return BadKey("tokens", "is not a range within 0.." + std::to_string(kMaxTokens));
  }
  for (std::size_t i = 0; i < info.layer_tokens.size(); ++i) {
    const TokenRange& tokens = info.layer_tokens[i];
    // Only a layer with a window may hold less than the file's range, and then the end of it.
    if (tokens.end != info.tokens.end || tokens.begin < info.tokens.begin ||
        (tokens.begin != info.tokens.begin && info.geometry.layers[i].window_tokens == 0)) {
      return MakeError(ErrorCode::kBadInput, "layer " + std::to_string(i) + " holds tokens " +
                                                 std::to_string(tokens.begin) + ".." +
                                                 std::to_string(tokens.end) + ", the file " +
                                                 std::to_string(info.tokens.begin) + ".." +
                                                 std::to_string(info.tokens.end));
    }
  }
  return {};
}

Status ApplyLayers(const StringMap& metadata, KvGeometry& geometry) {
  const std::size_t count = geometry.layers.size();
  KVSERVE_ASSIGN(const Json window, ParseList(metadata, "window", count));
  KVSERVE_ASSIGN(const Json style, ParseList(metadata, "rope_style", count));
  KVSERVE_ASSIGN(const Json theta, ParseList(metadata, "rope_theta", count));
  for (std::size_t i = 0; i < count; ++i) {
    LayerGeometry& layer = geometry.layers[i];
    if (!window.is_discarded()) {
      KVSERVE_ASSIGN(layer.window_tokens, TokenOf("window", window[i]));
    }
    if (!style.is_discarded()) {
      const auto* const name = std::find(kRopeNames.begin(), kRopeNames.end(),
                                         style[i].is_string() ? style[i].get<std::string>() : "");
      if (name == kRopeNames.end()) {
        return BadKey("rope_style", "has an entry that is not none, interleaved or halves");
      }
      layer.rope_style = static_cast<RopeStyle>(name - kRopeNames.begin());
    }
    if (!theta.is_discarded()) {
      if (!theta[i].is_number()) return BadKey("rope_theta", "has an entry that is not a number");
      layer.rope_theta = theta[i].get<float>();
    }
  }
  return {};
}

// Types without a name of their own in the tensors' headers.
bool IsStoredAsBytes(DType dtype) {
  return dtype == DType::kFloat8E4M3FNUZ || dtype == DType::kFloat8E5M2FNUZ;
}

Status ApplyIdentity(const StringMap& metadata, KvFileInfo& info) {
  if (const auto* layout = Find(metadata, "layout"); layout && *layout != kLayout) {
    return BadKey("layout", Quoted(*layout) + " is not " + Quoted(kLayout));
  }
  if (const auto* dtype = Find(metadata, "dtype"); dtype) {
    const auto named = ParseDType(*dtype);
    if (named && IsStoredAsBytes(*named) && info.geometry.dtype == DType::kUint8) {
      info.geometry.dtype = *named;
    } else if (*dtype != DTypeName(info.geometry.dtype)) {
      return BadKey("dtype", Quoted(*dtype) + " is not the tensors' " +
                                 std::string(DTypeName(info.geometry.dtype)));
    }
  }
  if (const auto* text = Find(metadata, "prompt_tokens"); text) {
    KVSERVE_ASSIGN(info.prompt_tokens, ParseTokens("prompt_tokens", *text));
  }
  for (const auto& [key, target] : {std::pair{"model", &info.model}, {"key", &info.key}}) {
    const auto* text = Find(metadata, key);
    if (text == nullptr) continue;
    auto fingerprint = ParseFingerprint(*text);
    if (!fingerprint) return BadKey(key, Quoted(*text) + " is not 32 hexadecimal digits");
    *target = *fingerprint;
  }
  return {};
}

}  // namespace

std::string_view RopeStyleName(RopeStyle style) {
  return kRopeNames[static_cast<std::size_t>(style)];
}

StringMap FormatKvMetadata(const KvFileInfo& info) {
  Json first = Json::array();
  Json window = Json::array();
  Json style = Json::array();
  Json theta = Json::array();
  for (std::size_t i = 0; i < info.geometry.layers.size(); ++i) {
    const LayerGeometry& layer = info.geometry.layers[i];
    first.push_back(info.layer_tokens[i].begin);
    window.push_back(layer.window_tokens);
    style.push_back(RopeStyleName(layer.rope_style));
    theta.push_back(static_cast<double>(layer.rope_theta));  // a float is exact as a double
  }
  StringMap metadata = {
      {"kvserve.layout", std::string(kLayout)},
      {"kvserve.dtype", std::string(DTypeName(info.geometry.dtype))},
      {"kvserve.tokens", Json::array({info.tokens.begin, info.tokens.end}).dump()},
      {"kvserve.first_token", first.dump()},
      {"kvserve.window", window.dump()},
      {"kvserve.rope_style", style.dump()},
      {"kvserve.rope_theta", theta.dump()},
  };
  if (!info.model.empty()) metadata["kvserve.model"] = info.model.hex();
  if (!info.key.empty()) metadata["kvserve.key"] = info.key.hex();
  if (info.prompt_tokens > 0) {
    metadata["kvserve.prompt_tokens"] = std::to_string(info.prompt_tokens);
  }
  return metadata;
}

Status ApplyKvMetadata(const StringMap& metadata, KvFileInfo& info) {
  constexpr std::string_view kKeys[] = {"layout", "dtype",        "tokens",     "first_token",
                                        "window", "rope_style",   "rope_theta", "model",
                                        "key",    "prompt_tokens"};
  for (const auto& [name, value] : metadata) {
    constexpr std::string_view kPrefix = "kvserve.";
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    const std::string_view key = std::string_view(name).substr(kPrefix.size());
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      return BadKey(key, "is not a key that this version knows");
    }
  }
  KVSERVE_TRY(ApplyIdentity(metadata, info));
  KVSERVE_TRY(ApplyLayers(metadata, info.geometry));
  return ApplyTokens(metadata, info);
}

}  // namespace kvserve
