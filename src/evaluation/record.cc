#include "evaluation/record.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/try.h"

namespace kvserve {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
constexpr unsigned kPieceBytes = 1 << 18;

struct GzCloser {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzHandle = std::unique_ptr<gzFile_s, GzCloser>;

tl::unexpected<Error> Bad(const std::string& path, const std::string& what) {
  return MakeError(ErrorCode::kBadInput, path + ": " + what);
}

// Plain files pass through zlib unchanged.
Result<std::string> ReadText(const std::string& path) {
  const GzHandle file(gzopen(path.c_str(), "rb"));
  if (!file) return Bad(path, "no such file or not readable");
  std::string text;
  for (;;) {
    const std::size_t at = text.size();
    text.resize(at + kPieceBytes);
    const int got = gzread(file.get(), text.data() + at, kPieceBytes);
    text.resize(at + (got > 0 ? static_cast<std::size_t>(got) : 0));
    int code = Z_OK;
    const char* reason = gzerror(file.get(), &code);
    if (got < 0 || code == Z_BUF_ERROR) return Bad(path, std::string("damaged: ") + reason);
    if (got == 0) return text;
    if (text.size() > kMaxBytes) {
      return MakeError(ErrorCode::kResourceExhausted, path + ": more than 1 GiB of text");
    }
  }
}

Result<std::string> StringField(const Json& object, const char* name, const std::string& where) {
  const auto field = object.find(name);
  if (field == object.end() || !field->is_string()) {
    return Bad(where, "field '" + std::string(name) + "' is missing or not a string");
  }
  return field->get<std::string>();
}

Result<Record> ParseRecord(std::string_view line, const std::string& where) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return Bad(where, "not a JSON object in UTF-8");
  Record record;
  KVSERVE_ASSIGN(record.id, StringField(object, "id", where));
  KVSERVE_ASSIGN(record.set, StringField(object, "set", where));
  KVSERVE_ASSIGN(record.task, StringField(object, "task", where));
  if (record.task != "lm") {
    return MakeError(ErrorCode::kUnsupported,
                     where + ": task '" + record.task + "' is not scored by this build; 'lm' is");
  }
  KVSERVE_ASSIGN(record.text, StringField(object, "text", where));
  return record;
}

}  // namespace

Result<std::vector<Record>> ReadRecords(const std::string& path) {
  KVSERVE_ASSIGN(const std::string text, ReadText(path));
  std::vector<Record> records;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    KVSERVE_ASSIGN(auto record, ParseRecord(line, path + ":" + std::to_string(number)));
    records.push_back(std::move(record));
  }
  if (records.empty()) return Bad(path, "no records");
  return records;
}

}  // namespace kvserve
