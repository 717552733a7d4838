// Parsing of a hostile header. The JSON library is used without exceptions; its callback form is
// needed because a plain parse silently keeps the last of two equal names.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/byte_io.h"
#include "base/checked.h"
#include "base/try.h"
#include "tensorfile/safetensors.h"

namespace kvserve {
namespace {

using Json = nlohmann::json;

struct ElementType {
  std::string_view name;
  std::uint64_t bytes;
};
// The types of the format. Sizes of types that are not listed are not checked against the shape;
// nothing here can load them.
constexpr ElementType kElementTypes[] = {
    {"F16", 2}, {"BF16", 2}, {"F32", 4}, {"F64", 8},     {"I8", 1},
    {"U8", 1},  {"BOOL", 1}, {"I16", 2}, {"U16", 2},     {"I32", 4},
    {"U32", 4}, {"I64", 8},  {"U64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

tl::unexpected<Error> Bad(const std::string& message) {
  return MakeError(ErrorCode::kBadInput, message);
}

Result<Json> ParseHeader(const std::string& text) {
  std::vector<std::set<std::string>> names;
  std::string duplicate;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && duplicate.empty() &&
        !names.back().insert(parsed.get_ref<const std::string&>()).second) {
      duplicate = parsed.get_ref<const std::string&>();
    }
    return true;
  };
  Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (header.is_discarded()) return Bad("header is not valid JSON");
  if (!header.is_object()) return Bad("header is not a JSON object");
  if (!duplicate.empty()) return Bad("header names '" + duplicate + "' twice");
  return header;
}

Status CheckBytes(const TensorInfo& tensor) {
  const auto* const type = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                        [&](const auto& row) { return row.name == tensor.dtype; });
  if (type == std::end(kElementTypes)) return {};
  std::optional<std::uint64_t> bytes = type->bytes;
  for (const std::uint64_t extent : tensor.shape) {
    bytes = CheckedMul(*bytes, extent);
    if (!bytes) return Bad("tensor '" + tensor.name + "': shape is larger than 64 bits can say");
  }
  if (*bytes != tensor.bytes) {
    return Bad("tensor '" + tensor.name + "': shape needs " + std::to_string(*bytes) +
               " bytes, data_offsets give " + std::to_string(tensor.bytes));
  }
  return {};
}

// An array of unsigned 64-bit integers.
bool ReadExtents(const Json& entry, const char* key, std::vector<std::uint64_t>& out) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return false;
  for (const Json& value : *found) {
    if (!value.is_number_unsigned()) return false;
    out.push_back(value.get<std::uint64_t>());
  }
  return true;
}

Result<TensorInfo> ReadTensor(const std::string& name, const Json& entry, std::uint64_t data_begin,
                              std::uint64_t data_bytes) {
  TensorInfo tensor;
  tensor.name = name;
  std::vector<std::uint64_t> offsets;
  const auto dtype = entry.is_object() ? entry.find("dtype") : entry.end();
  if (!entry.is_object() || entry.size() != 3 || dtype == entry.end() || !dtype->is_string() ||
      !ReadExtents(entry, "shape", tensor.shape) || !ReadExtents(entry, "data_offsets", offsets) ||
      offsets.size() != 2) {
    return Bad("tensor '" + name + "' does not have dtype, shape and two data_offsets");
  }
  tensor.dtype = dtype->get<std::string>();
  if (offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return Bad("tensor '" + name + "': data_offsets [" + std::to_string(offsets[0]) + ", " +
               std::to_string(offsets[1]) + "] are not inside the " + std::to_string(data_bytes) +
               " data bytes");
  }
  tensor.offset = data_begin + offsets[0];
  tensor.bytes = offsets[1] - offsets[0];
  KVSERVE_TRY(CheckBytes(tensor));
  return tensor;
}

Status ReadMetadata(const Json& entry, StringMap& out) {
  if (!entry.is_object()) return Bad("__metadata__ is not an object");
  for (const auto& item : entry.items()) {
    if (!item.value().is_string()) {
      return Bad("__metadata__ '" + item.key() + "' is not a string");
    }
    out.emplace(item.key(), item.value().get<std::string>());
  }
  return {};
}

// `tensors` in order of offset must tile the data exactly.
Status CheckTiling(const std::vector<TensorInfo>& tensors, std::uint64_t data_begin,
                   std::uint64_t file_bytes) {
  std::uint64_t next = data_begin;
  for (const auto& tensor : tensors) {
    if (tensor.offset != next) {
      return Bad("tensor '" + tensor.name + "' starts at byte " + std::to_string(tensor.offset) +
                 (tensor.offset < next ? ", inside the one before it" : ", after a hole") +
                 " (expected " + std::to_string(next) + ")");
    }
    next += tensor.bytes;
  }
  if (next != file_bytes) {
    return Bad(std::to_string(file_bytes - next) + " bytes after the last tensor");
  }
  return {};
}

Result<std::string> ReadHeaderText(const InputFile& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) {
    return Bad("has " + std::to_string(file.size()) + " bytes, too few for a safetensors file");
  }
  KVSERVE_TRY(file.ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
  const std::uint64_t limit = std::min(kMaxSafetensorsHeaderBytes, file.size() - sizeof(length));
  if (length > limit) {
    return Bad("not a safetensors file: its header length " + std::to_string(length) +
               " is above " + std::to_string(limit));
  }
  std::string text(length, '\0');
  KVSERVE_TRY(file.ReadAt(sizeof(length), std::as_writable_bytes(std::span(text))));
  return text;
}

Status ReadEntries(const InputFile& file, std::vector<TensorInfo>& tensors, StringMap& metadata) {
  KVSERVE_ASSIGN(const std::string text, ReadHeaderText(file));
  KVSERVE_ASSIGN(const Json header, ParseHeader(text));
  const std::uint64_t data_begin = sizeof(std::uint64_t) + text.size();
  for (const auto& item : header.items()) {
    if (item.key() == "__metadata__") {
      KVSERVE_TRY(ReadMetadata(item.value(), metadata));
      continue;
    }
    KVSERVE_ASSIGN(TensorInfo tensor,
                   ReadTensor(item.key(), item.value(), data_begin, file.size() - data_begin));
    tensors.push_back(std::move(tensor));
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  return CheckTiling(tensors, data_begin, file.size());
}

}  // namespace

Result<DType> DTypeOfSafetensors(std::string_view name) {
  if (name == "F16") return DType::kFloat16;
  if (name == "BF16") return DType::kBFloat16;
  if (name == "F32") return DType::kFloat32;
  if (name == "F8_E4M3") return DType::kFloat8E4M3FN;
  if (name == "F8_E5M2") return DType::kFloat8E5M2;
  if (name == "U8") return DType::kUint8;
  return MakeError(
      ErrorCode::kUnsupported,
      "dtype " + std::string(name) + " is not one of F16, BF16, F32, F8_E4M3, F8_E5M2, U8");
}

Result<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  KVSERVE_ASSIGN(InputFile file, InputFile::Open(path));
  SafetensorsReader reader(std::move(file));
  if (auto status = ReadEntries(reader.file_, reader.tensors_, reader.metadata_); !status) {
    Error error = std::move(status).error();
    return MakeError(error.code, path + ": " + error.message);
  }
  return reader;
}

const TensorInfo* SafetensorsReader::Find(std::string_view name) const {
  for (const auto& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Status SafetensorsReader::Read(const TensorInfo& tensor, std::uint64_t begin,
                               std::span<std::byte> out) const {
  if (begin > tensor.bytes || out.size() > tensor.bytes - begin) {
    return Bad("tensor '" + tensor.name + "': " + std::to_string(out.size()) + " bytes at " +
               std::to_string(begin) + " are not inside its " + std::to_string(tensor.bytes));
  }
  return file_.ReadAt(tensor.offset + begin, out);
}

}  // namespace kvserve
