// A file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kvserve/error.h"

namespace kvserve {

// Writes to a temporary name in the target's folder; Commit renames, the destructor of an
// uncommitted file removes it. An existing target that is not a regular file is refused; a symbolic
// link is followed. Not thread-safe. Errors: kInvalidArgument (cannot create), kResourceExhausted
// (cannot write), both with the system's reason.
class OutputFile {
 public:
  [[nodiscard]] static Result<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  [[nodiscard]] Status Append(std::span<const std::byte> bytes);
  [[nodiscard]] Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes);
  // Grows the file with zeros up to `bytes`.
  [[nodiscard]] Status SetSize(std::uint64_t bytes);
  [[nodiscard]] Status Commit();

 private:
  OutputFile() = default;
  void Discard();

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace kvserve
