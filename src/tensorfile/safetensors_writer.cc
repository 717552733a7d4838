#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/try.h"
#include "tensorfile/safetensors.h"

namespace kvserve {
namespace {

Result<std::uint64_t> TensorBytes(const TensorShape& tensor) {
  std::optional<std::uint64_t> bytes = DTypeBytes(tensor.dtype);
  for (const std::uint64_t extent : tensor.shape) {
    if (bytes) bytes = CheckedMul(*bytes, extent);
  }
  if (!bytes || *bytes > static_cast<std::uint64_t>(INT64_MAX)) {
    return MakeError(ErrorCode::kInvalidArgument, "tensor '" + tensor.name + "' is too large");
  }
  return *bytes;
}

}  // namespace

std::string_view SafetensorsName(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return "F16";
    case DType::kBFloat16: return "BF16";
    case DType::kFloat32: return "F32";
    case DType::kFloat8E4M3FN: return "F8_E4M3";
    case DType::kFloat8E5M2: return "F8_E5M2";
    case DType::kUint8:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ: return "U8";
    default: return {};
  }
}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                    std::span<const TensorShape> tensors,
                                                    const StringMap& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint64_t> sizes;
  std::uint64_t end = 0;
  for (const auto& tensor : tensors) {
    KVSERVE_TRY(CheckDTypeSupported(tensor.dtype));
    KVSERVE_ASSIGN(const std::uint64_t bytes, TensorBytes(tensor));
    offsets.push_back(end);
    sizes.push_back(bytes);
    const auto sum = CheckedAdd(end, bytes);
    if (!sum || header.contains(tensor.name)) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "tensor '" + tensor.name + "' is named twice or ends beyond 64 bits");
    }
    end = *sum;
    header[tensor.name] = {{"dtype", SafetensorsName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offsets.back(), end}}};
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // readers that map the file want aligned data
  if (text.size() > kMaxSafetensorsHeaderBytes) {
    return MakeError(ErrorCode::kInvalidArgument, "header of " + std::to_string(text.size()) +
                                                      " bytes is above " +
                                                      std::to_string(kMaxSafetensorsHeaderBytes));
  }
  const std::uint64_t length = text.size();
  for (auto& offset : offsets) offset += sizeof(length) + length;
  KVSERVE_ASSIGN(OutputFile file, OutputFile::Create(path));
  KVSERVE_TRY(file.Append(std::as_bytes(std::span(&length, 1))));
  KVSERVE_TRY(file.Append(std::as_bytes(std::span(text))));
  KVSERVE_TRY(file.SetSize(sizeof(length) + length + end));
  SafetensorsWriter writer(std::move(file));
  writer.offsets_ = std::move(offsets);
  writer.bytes_ = std::move(sizes);
  return writer;
}

Status SafetensorsWriter::Write(std::size_t index, std::uint64_t begin,
                                std::span<const std::byte> bytes) {
  if (index >= bytes_.size() || begin > bytes_[index] || bytes.size() > bytes_[index] - begin) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "bytes are outside of tensor number " + std::to_string(index));
  }
  return file_.WriteAt(offsets_[index] + begin, bytes);
}

}  // namespace kvserve
