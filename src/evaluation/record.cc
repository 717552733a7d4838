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

// Fields of one JSON object, with the place that errors name.
class Fields {
 public:
  Fields(const Json& object, const std::string& where) : object_(object), where_(where) {}

  [[nodiscard]] bool Has(const char* name) const { return object_.contains(name); }
  [[nodiscard]] Result<std::string> Text(const char* name) const {
    const auto field = object_.find(name);
    if (field == object_.end() || !field->is_string()) return Missing(name, "a string");
    return field->get<std::string>();
  }
  // Empty when the field is not there.
  [[nodiscard]] Result<std::string> OptionalText(const char* name) const {
    if (!Has(name)) return std::string();
    return Text(name);
  }
  // At least one string.
  [[nodiscard]] Result<std::vector<std::string>> Texts(const char* name) const {
    const auto field = object_.find(name);
    const bool texts = field != object_.end() && field->is_array() && !field->empty() &&
                       std::ranges::all_of(*field, [](const Json& x) { return x.is_string(); });
    if (!texts) return Missing(name, "a list of strings");
    return field->get<std::vector<std::string>>();
  }
  [[nodiscard]] Result<std::size_t> Index(const char* name, std::size_t count) const {
    const auto field = object_.find(name);
    if (field == object_.end() || !field->is_number_unsigned()) return Missing(name, "an index");
    const auto index = field->get<std::size_t>();
    if (index < count) return index;
    return Bad(where_, "field '" + std::string(name) + "' is " + std::to_string(index) +
                           ", there are " + std::to_string(count));
  }
  // "qas", or "question" and "answers" themselves.
  [[nodiscard]] Result<std::vector<Question>> Questions() const {
    std::vector<Question> questions;
    const auto list = object_.find("qas");
    if (list == object_.end()) {
      KVSERVE_ASSIGN(questions.emplace_back(), OneQuestion());
      return questions;
    }
    if (!list->is_array() || list->empty()) return Missing("qas", "a list of questions");
    for (const Json& entry : *list) {
      if (!entry.is_object()) return Missing("qas", "a list of questions");
      KVSERVE_ASSIGN(questions.emplace_back(), Fields(entry, where_).OneQuestion());
    }
    return questions;
  }

 private:
  [[nodiscard]] Result<Question> OneQuestion() const {
    Question question;
    KVSERVE_ASSIGN(question.text, OptionalText("question"));
    KVSERVE_ASSIGN(question.answers, Texts("answers"));
    return question;
  }
  [[nodiscard]] tl::unexpected<Error> Missing(const char* name, const char* what) const {
    return Bad(where_, "field '" + std::string(name) + "' is missing or not " + what);
  }

  const Json& object_;
  const std::string& where_;
};

Status ReadTaskFields(const Fields& fields, Record& record) {
  switch (record.task) {
    case Task::kLm:
    case Task::kPassage:
    case Task::kPrefix: {
      KVSERVE_ASSIGN(record.text, fields.Text("text"));
      return {};
    }
    case Task::kChoicePrefix: {
      KVSERVE_ASSIGN(record.prefixes, fields.Texts("prefixes"));
      KVSERVE_ASSIGN(record.continuation, fields.Text("continuation"));
      KVSERVE_ASSIGN(record.gold, fields.Index("gold", record.prefixes.size()));
      return {};
    }
    case Task::kChoice: {
      KVSERVE_ASSIGN(record.context, fields.OptionalText("context"));
      KVSERVE_ASSIGN(record.choices, fields.Texts("choices"));
      KVSERVE_ASSIGN(record.gold, fields.Index("gold", record.choices.size()));
      Question question;
      KVSERVE_ASSIGN(question.text, fields.Text("question"));
      question.answers = {record.choices[record.gold]};
      record.questions.push_back(std::move(question));
      return {};
    }
    case Task::kMath: {
      KVSERVE_ASSIGN(record.solution, fields.OptionalText("solution"));
      break;
    }
    default: break;
  }
  KVSERVE_ASSIGN(record.context, fields.OptionalText("context"));
  KVSERVE_ASSIGN(record.questions, fields.Questions());
  return {};
}

Result<Record> ParseRecord(std::string_view line, const std::string& where) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return Bad(where, "not a JSON object in UTF-8");
  const Fields fields(object, where);
  Record record;
  KVSERVE_ASSIGN(record.id, fields.Text("id"));
  KVSERVE_ASSIGN(record.set, fields.Text("set"));
  KVSERVE_ASSIGN(const std::string name, fields.Text("task"));
  const auto task = ParseTask(name);
  if (!task) {
    return MakeError(ErrorCode::kUnsupported,
                     where + ": task '" + name + "' is not known to this build");
  }
  record.task = *task;
  KVSERVE_TRY(ReadTaskFields(fields, record));
  return record;
}

}  // namespace

Result<std::vector<Record>> ParseRecords(std::string_view text, const std::string& path) {
  std::vector<Record> records;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    KVSERVE_ASSIGN(auto record, ParseRecord(line, path + ":" + std::to_string(number)));
    records.push_back(std::move(record));
  }
  if (records.empty()) return Bad(path, "no records");
  return records;
}

Result<std::vector<Record>> ReadRecords(const std::string& path) {
  KVSERVE_ASSIGN(const std::string text, ReadText(path));
  return ParseRecords(text, path);
}

std::string PlainText(const Record& record) {
  std::string text = record.text.empty() ? record.context : record.text;
  const auto add = [&text](const std::string& part, const char* before) {
    if (!part.empty()) text += (text.empty() ? "" : before) + part;
  };
  for (const Question& question : record.questions) {
    add(question.text, "\n\n");
    add(record.solution.empty() ? question.answers.front() : record.solution, "\n");
  }
  if (!record.prefixes.empty()) add(record.prefixes[record.gold], "\n\n");
  add(record.continuation, " ");
  return text;
}

}  // namespace kvserve
