#include "tensorfile/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/output_target.h"
#include "base/try.h"

namespace kvserve {
namespace {

constexpr unsigned kMaxAttempts = 1000;  // names left behind by killed processes

}  // namespace

Result<OutputFile> OutputFile::Create(const std::string& path) {
  OutputFile file;
  KVSERVE_ASSIGN(file.path_, ResolveOutputTarget(path));
  for (unsigned attempt = 0; file.descriptor_ < 0; ++attempt) {
    std::string name =
        file.path_ + "." + std::to_string(::getpid()) + "." + std::to_string(attempt) + ".tmp";
    file.descriptor_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.descriptor_ >= 0) file.temporary_ = std::move(name);
    if (file.descriptor_ < 0 && (errno != EEXIST || attempt == kMaxAttempts)) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "cannot write " + path + ": " + std::strerror(errno));
    }
  }
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

OutputFile::~OutputFile() {
  Discard();
}

void OutputFile::Discard() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(std::exchange(temporary_, {}).c_str());
}

Status OutputFile::Append(std::span<const std::byte> bytes) {
  return WriteAt(size_, bytes);
}

Status OutputFile::WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return MakeError(ErrorCode::kResourceExhausted,
                       "cannot write " + path_ + ": " + std::strerror(errno));
    }
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  if (offset > size_) size_ = offset;
  return {};
}

Status OutputFile::SetSize(std::uint64_t bytes) {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "cannot write " + path_ + ": " + std::strerror(errno));
  }
  size_ = bytes;
  return {};
}

Status OutputFile::Commit() {
  const bool named = ::close(std::exchange(descriptor_, -1)) == 0 &&
                     ::rename(temporary_.c_str(), path_.c_str()) == 0;
  if (!named) {
    const std::string reason = std::strerror(errno);
    Discard();
    return MakeError(ErrorCode::kResourceExhausted, "cannot finish " + path_ + ": " + reason);
  }
  temporary_.clear();
  return {};
}

}  // namespace kvserve
