#include "calibration_data.h"

#include <algorithm>
#include <string_view>

#include "base/try.h"
#include "evaluation/record.h"
#include "kv_source.h"
#include "text_file.h"

namespace kvserve::tool {
namespace {

Result<std::vector<std::string>> ReadTexts(const std::string& path) {
  std::vector<std::string> texts;
  const std::string_view name(path);
  if (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")) {
    KVSERVE_ASSIGN(const auto records, ReadRecords(path));
    for (const Record& record : records) texts.push_back(PlainText(record));
    return texts;
  }
  KVSERVE_ASSIGN(std::string text, ReadTextFile(path));
  texts.push_back(std::move(text));
  return texts;
}

}  // namespace

Result<std::vector<CalibrationFile>> ReadCalibrationFiles(std::span<const std::string> paths,
                                                          std::size_t limit) {
  std::vector<CalibrationFile> files;
  std::size_t left = limit == 0 ? SIZE_MAX : limit;
  for (const std::string& path : paths) {
    CalibrationFile file;
    file.path = path;
    KVSERVE_ASSIGN(const bool safetensors, IsSafetensors(path));
    if (safetensors || path.ends_with(".safetensors")) {
      KVSERVE_ASSIGN(auto kv, KvFileReader::Open(path));
      file.kv.emplace(std::move(kv));
    } else {
      KVSERVE_ASSIGN(file.texts, ReadTexts(path));
      file.texts.resize(std::min(left, file.texts.size()));
      left -= file.texts.size();
      if (file.texts.empty()) continue;
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace kvserve::tool
