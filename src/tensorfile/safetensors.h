// The safetensors container: an 8-byte header length, a JSON header, then the tensors' bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "tensorfile/input_file.h"
#include "tensorfile/output_file.h"

namespace kvserve {

inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = std::uint64_t{1} << 24;

struct TensorInfo {
  std::string name;
  std::string dtype;  // as the file says: "BF16", "F16", "F32", "I64", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;  // absolute, in the file
  std::uint64_t bytes = 0;
};

using StringMap = std::map<std::string, std::string, std::less<>>;

// "F16", "BF16", "F32", "F8_E4M3", "F8_E5M2" and "U8"; kUnsupported names any other. The format has
// no names for the FNUZ forms: they are written as "U8", and whoever reads them must know.
[[nodiscard]] Result<DType> DTypeOfSafetensors(std::string_view name);
[[nodiscard]] std::string_view SafetensorsName(DType dtype);

// Hostile files are safe: the header is at most kMaxSafetensorsHeaderBytes, tensors lie inside the
// file without overlap or hole, names are unique and sizes of known dtypes fit their shapes.
// kBadInput names what is wrong.
class SafetensorsReader {
 public:
  [[nodiscard]] static Result<SafetensorsReader> Open(const std::string& path);

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }  // by offset
  [[nodiscard]] const StringMap& metadata() const { return metadata_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const;
  // Bytes [begin, begin + out.size()) of a tensor's data; kBadInput outside of it.
  [[nodiscard]] Status Read(const TensorInfo& tensor, std::uint64_t begin,
                            std::span<std::byte> out) const;

 private:
  explicit SafetensorsReader(InputFile file) : file_(std::move(file)) {}

  InputFile file_;
  std::vector<TensorInfo> tensors_;
  StringMap metadata_;
};

struct TensorShape {
  std::string name;
  DType dtype = DType::kFloat16;
  std::vector<std::uint64_t> shape;
};

// Writes a file whose tensors are known beforehand, in any order of pieces; nothing is buffered.
// Pieces that were never written read as zero. The file appears at Commit.
class SafetensorsWriter {
 public:
  [[nodiscard]] static Result<SafetensorsWriter> Create(const std::string& path,
                                                        std::span<const TensorShape> tensors,
                                                        const StringMap& metadata);
  // Writes at byte `begin` of tensor number `index`; kInvalidArgument outside of it.
  [[nodiscard]] Status Write(std::size_t index, std::uint64_t begin,
                             std::span<const std::byte> bytes);
  [[nodiscard]] Status Commit() { return file_.Commit(); }

 private:
  explicit SafetensorsWriter(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  std::vector<std::uint64_t> offsets_;  // [tensor], absolute
  std::vector<std::uint64_t> bytes_;    // [tensor]
};

}  // namespace kvserve
