#include "profile_argument.h"

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/try.h"
#include "kvserve/codec.h"
#include "pipeline/chain.h"
#include "published_profile.h"
#include "stages/registry.h"
#include "tensorfile/input_file.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr int kMaxDepth = 32;  // of a file: what walks through it calls itself
constexpr std::string_view kDelimiters = "|:=,";

tl::unexpected<Error> Wrong(const std::string& message) {
  return MakeError(ErrorCode::kInvalidArgument, message);
}

// A name or word that cannot change the structure of the short form it goes into.
Result<std::string> Word(const Json& value, const std::string& what) {
  if (!value.is_string()) return Wrong(what + " is not a string");
  std::string text = value.get<std::string>();
  if (text.empty() || text.find_first_of(kDelimiters) != std::string::npos) {
    return Wrong(what + " '" + text + "' is not one word");
  }
  return text;
}

Result<std::string> ValueWord(const Json& value, const std::string& what) {
  if (value.is_boolean()) return std::string(value.get<bool>() ? "true" : "false");
  if (value.is_string()) return Word(value, what);
  if (!value.is_number()) return Wrong(what + " is not a number, a boolean or a word");
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value.get<double>()).ptr;
  return std::string(text, end);
}

Result<std::string> StageText(const Json& stage, std::size_t index) {
  const std::string where = "stages[" + std::to_string(index) + "]";
  if (!stage.is_object() || !stage.contains("name")) return Wrong(where + " has no name");
  KVSERVE_ASSIGN(std::string text, Word(stage["name"], where + ".name"));
  for (const auto& item : stage.items()) {
    if (item.key() == "name") continue;
    if (item.key() != "parameters" || !item.value().is_object()) {
      return Wrong(where + ": '" + item.key() + "' is not name or an object of parameters");
    }
    char separator = ':';
    for (const auto& parameter : item.value().items()) {
      const std::string what = where + ".parameters." + parameter.key();
      KVSERVE_ASSIGN(const std::string key, Word(parameter.key(), what));
      KVSERVE_ASSIGN(const std::string value, ValueWord(parameter.value(), what));
      text += separator;
      text.append(key).append("=").append(value);
      separator = ',';
    }
  }
  return text;
}

Result<std::string> ShortForm(const Json& document) {
  if (!document.is_object() || document.size() != 1) {
    return Wrong("a profile file has one key, \"profile\" or \"stages\"");
  }
  const std::string key = document.begin().key();
  const Json& value = document.begin().value();
  if (key == "profile" && value.is_string()) return value.get<std::string>();
  if (key != "stages" || !value.is_array()) {
    return Wrong("key '" + key + "' is not a \"profile\" text or a \"stages\" list");
  }
  std::string text;
  for (std::size_t i = 0; i < value.size(); ++i) {
    KVSERVE_ASSIGN(const std::string stage, StageText(value[i], i));
    text += (i > 0 ? "|" : "") + stage;
  }
  return text;
}

// Makes the chain once, so that a combination that no frame can have is a usage error before any
// data is read.
Result<Profile> ParseChecked(std::string_view text) {
  KVSERVE_ASSIGN(Profile profile, ParseProfile(text));
  KVSERVE_TRY(Chain::Create(profile.stages, BuiltinStages(), DType::kFloat32, Device::kHost,
                            ProfileOrigin::kCaller));
  return profile;
}

// Says in one line what it became and what was lost.
Result<Profile> ParsePublished(const Json& document, const std::string& path) {
  KVSERVE_ASSIGN(const ImportedProfile imported, ImportPublishedProfile(document));
  KVSERVE_ASSIGN(Profile profile, ParseChecked(imported.text));
  std::string lost;
  for (const std::string& what : imported.lost) lost += (lost.empty() ? "; without " : ", ") + what;
  std::fprintf(stderr, "kvserve: %s: imported as %s%s\n", path.c_str(), profile.name.c_str(),
               lost.c_str());
  return profile;
}

Result<Profile> ParseFile(const std::vector<std::byte>& bytes, const std::string& path) {
  const auto* const text = reinterpret_cast<const char*>(bytes.data());
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, const Json& /*parsed*/) {
    const bool opens =
        event == Json::parse_event_t::array_start || event == Json::parse_event_t::object_start;
    too_deep = too_deep || (opens && depth >= kMaxDepth);
    return !too_deep;
  };
  const Json document = Json::parse(text, text + bytes.size(), watch, false);
  if (too_deep) return Wrong("is nested deeper than " + std::to_string(kMaxDepth) + " levels");
  if (document.is_discarded()) return Wrong("is not valid JSON");
  if (IsPublishedProfile(document)) return ParsePublished(document, path);
  KVSERVE_ASSIGN(const std::string short_form, ShortForm(document));
  return ParseChecked(short_form);
}

}  // namespace

bool NamesProfileFile(const std::string& argument) {
  return argument.find('/') != std::string::npos || std::string_view(argument).ends_with(".json");
}

Result<Profile> LoadProfile(const std::string& argument) {
  if (!NamesProfileFile(argument)) return ParseChecked(argument);
  KVSERVE_ASSIGN(const auto bytes, ReadFile(argument, kMaxFileBytes));
  auto profile = ParseFile(bytes, argument);
  if (!profile) return MakeError(profile.error().code, argument + ": " + profile.error().message);
  return profile;
}

}  // namespace kvserve::tool
