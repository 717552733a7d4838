#include "evaluate_data.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/hash.h"
#include "base/try.h"
#include "evaluation/shipped_records.h"
#include "library/calibration_artefact.h"

namespace kvserve::tool {
namespace {

bool IsIn(Split split, const Record& record) {
  if (split == Split::kAll) return true;
  const bool search = Hash64(std::as_bytes(std::span(record.id))) % 2 == 0;
  return search == (split == Split::kSearch);
}

}  // namespace

Result<Split> ParseSplit(const std::string& text) {
  if (text == "all") return Split::kAll;
  if (text == "search") return Split::kSearch;
  if (text == "test") return Split::kTest;
  return MakeError(ErrorCode::kInvalidArgument,
                   "--split '" + text + "' is not one of all, search, test");
}

Result<std::vector<Record>> ReadEvaluationData(std::span<const std::string> paths, Split split) {
  std::vector<Record> records;
  if (paths.empty()) {
    KVSERVE_ASSIGN(records, ShippedRecords());
  }
  for (const std::string& path : paths) {
    KVSERVE_ASSIGN(auto read, ReadRecords(path));
    std::ranges::move(read, std::back_inserter(records));
  }
  std::erase_if(records, [&](const Record& record) { return !IsIn(split, record); });
  if (!records.empty()) return records;
  return MakeError(ErrorCode::kBadInput, "no record of the data is in this half of --split");
}

std::vector<std::string> CalibratedOn(const CalibrationArtefact* artefact,
                                      std::span<const std::string> paths) {
  std::vector<std::string> names;
  if (artefact == nullptr) return names;
  for (const std::string& path : paths) {
    const std::string name = std::filesystem::path(path).filename().string();
    if (artefact->contents().source.find(name) != std::string::npos) names.push_back(name);
  }
  return names;
}

}  // namespace kvserve::tool
