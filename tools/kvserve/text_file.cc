#include "text_file.h"

#include <cstdint>

#include "base/try.h"
#include "tensorfile/input_file.h"

namespace kvserve::tool {
namespace {

constexpr std::uint64_t kMaxTextBytes = 64 << 20;

}  // namespace

Result<std::string> ReadTextFile(const std::string& path) {
  KVSERVE_ASSIGN(const auto bytes, ReadFile(path, kMaxTextBytes));
  if (bytes.empty()) return MakeError(ErrorCode::kBadInput, path + ": has no text");
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const auto zero = text.find('\0'); zero != std::string::npos) {
    return MakeError(ErrorCode::kBadInput,
                     path + ": is no text, byte " + std::to_string(zero) + " is zero");
  }
  return text;
}

}  // namespace kvserve::tool
