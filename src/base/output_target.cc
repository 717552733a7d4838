#include "base/output_target.h"

#include <sys/stat.h>

#include <filesystem>

namespace kvserve {

Result<std::string> ResolveOutputTarget(const std::string& path) {
  if (path.empty()) {
    return MakeError(ErrorCode::kInvalidArgument, "the name of the file to write is empty");
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return path;
  if (!S_ISREG(status.st_mode)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "cannot write " + path + ": it exists and is not a regular file");
  }
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

}  // namespace kvserve
