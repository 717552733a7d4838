// Files of chosen bytes for tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace kvserve {

// A path in the test's temporary folder; the file is removed with the object.
class TemporaryPath {
 public:
  explicit TemporaryPath(const std::string& name)
      : path_(testing::TempDir() + "kvserve-" + std::to_string(::getpid()) + "-" + name) {
    std::remove(path_.c_str());
  }
  ~TemporaryPath() { std::remove(path_.c_str()); }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;
  [[nodiscard]] const std::string& str() const { return path_; }

 private:
  std::string path_;
};

inline void WriteRaw(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A safetensors file whose header says whatever the test wants, with `data_bytes` zero bytes of
// data.
inline void WriteRawSafetensors(const std::string& path, std::string_view header,
                                std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes.append(header).append(data_bytes, '\0');
  WriteRaw(path, bytes);
}

}  // namespace kvserve
