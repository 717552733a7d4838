#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/try.h"
#include "library/calibration_file.h"

namespace kvserve {
namespace {

// A pipe or device could block or never end.
Result<std::vector<std::byte>> ReadRegularFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return MakeError(ErrorCode::kBadInput, path + ": no such file, or not a regular one");
  }
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxCalibrationBytes) {
    return MakeError(ErrorCode::kBadInput, path + ": larger than any calibration artefact");
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) return MakeError(ErrorCode::kBadInput, path + ": cannot be read");
  return bytes;
}

}  // namespace

Result<std::shared_ptr<const CalibrationArtefact>> LoadCalibration(const std::string& path) {
  KVSERVE_ASSIGN(const auto bytes, ReadRegularFile(path));
  auto artefact = ParseCalibration(bytes);
  if (!artefact) return MakeError(artefact.error().code, path + ": " + artefact.error().message);
  return artefact;
}

}  // namespace kvserve
