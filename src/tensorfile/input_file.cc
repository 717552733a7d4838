#include "tensorfile/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/try.h"

namespace kvserve {
namespace {

tl::unexpected<Error> SystemError(const std::string& what, const std::string& path) {
  return MakeError(ErrorCode::kBadInput, what + " " + path + ": " + std::strerror(errno));
}

}  // namespace

Result<InputFile> InputFile::Open(const std::string& path) {
  InputFile file;
  file.path_ = path;
  // Non-blocking: opening a FIFO without a writer would hang before it can be refused.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) return SystemError("cannot open", path);
  struct stat status {};
  if (::fstat(file.descriptor_, &status) != 0) return SystemError("cannot examine", path);
  if (!S_ISREG(status.st_mode)) {
    return MakeError(ErrorCode::kBadInput, path + " is not a regular file");
  }
  file.size_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status InputFile::ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    return MakeError(ErrorCode::kBadInput, path_ + ": " + std::to_string(out.size()) +
                                               " bytes wanted at " + std::to_string(offset) +
                                               ", the file has " + std::to_string(size_));
  }
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError("cannot read", path_);
    if (count == 0) return MakeError(ErrorCode::kBadInput, path_ + " shrank while it was read");
    offset += static_cast<std::uint64_t>(count);
    out = out.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Result<std::vector<std::byte>> ReadFile(const std::string& path, std::uint64_t max_bytes) {
  KVSERVE_ASSIGN(const InputFile file, InputFile::Open(path));
  if (file.size() > max_bytes) {
    return MakeError(ErrorCode::kResourceExhausted, path + " has " + std::to_string(file.size()) +
                                                        " bytes, at most " +
                                                        std::to_string(max_bytes) + " are read");
  }
  std::vector<std::byte> bytes;
  try {
    bytes.resize(file.size());
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorCode::kResourceExhausted,
                     path + ": no memory for " + std::to_string(file.size()) + " bytes");
  }
  KVSERVE_TRY(file.ReadAt(0, bytes));
  return bytes;
}

}  // namespace kvserve
