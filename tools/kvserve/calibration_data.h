// The files of calibrate's --data: texts, records of texts, and KV files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvserve/error.h"
#include "tensorfile/kv_file.h"

namespace kvserve::tool {

// One file: texts, or KV.
struct CalibrationFile {
  std::string path;
  std::vector<std::string> texts;
  std::optional<KvFileReader> kv;
  std::uint64_t tokens = 0;  // set when they are counted
};

// A file with the contents or the name of safetensors is a KV file; of the others, .jsonl and
// .jsonl.gz are records as evaluate reads them, and anything else is one text. Files of texts
// beyond the first `limit` texts (0: no limit) are cut or left out. kBadInput names the file.
[[nodiscard]] Result<std::vector<CalibrationFile>> ReadCalibrationFiles(
    std::span<const std::string> paths, std::size_t limit);

}  // namespace kvserve::tool
