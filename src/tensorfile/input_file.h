// A regular file opened for reading at offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

// Reads with pread instead of mapping: a file that shrinks meanwhile is an error, not a signal.
// Reading is safe from several threads. Errors: kBadInput with path and the system's reason.
class InputFile {
 public:
  [[nodiscard]] static Result<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  InputFile() = default;

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Whole contents; kResourceExhausted above `max_bytes`.
[[nodiscard]] Result<std::vector<std::byte>> ReadFile(const std::string& path,
                                                      std::uint64_t max_bytes = UINT64_MAX);

}  // namespace kvserve
