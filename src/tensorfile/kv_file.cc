#include "tensorfile/kv_file.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/plane_bytes.h"
#include "base/try.h"
#include "tensorfile/kv_metadata.h"

namespace kvserve {
namespace {

tl::unexpected<Error> Bad(const std::string& message) {
  return MakeError(ErrorCode::kBadInput, message);
}

struct PlaneName {
  PlaneKind kind = PlaneKind::kKey;
  std::uint32_t layer = 0;
};

// "k.12" or "v.12" without leading zeros; nothing for other names.
std::optional<PlaneName> ParsePlaneName(std::string_view name) {
  if (name.size() < 3 || name[1] != '.' || (name[0] != 'k' && name[0] != 'v')) return std::nullopt;
  const std::string_view digits = name.substr(2);
  if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
  PlaneName plane{name[0] == 'k' ? PlaneKind::kKey : PlaneKind::kValue, 0};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), plane.layer);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return plane;
}

Status CheckPlane(const TensorInfo& tensor) {
  if (tensor.shape.size() != 3) {
    return Bad("tensor '" + tensor.name + "' has " + std::to_string(tensor.shape.size()) +
               " axes, not [token, head, dim]");
  }
  const std::uint64_t highest[] = {kMaxTokens, kMaxHeads, kMaxDim};
  const char* const axes[] = {"token", "head", "dim"};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::uint64_t lowest = i == 0 ? 0 : 1;
    if (tensor.shape[i] < lowest || tensor.shape[i] > highest[i]) {
      return Bad("tensor '" + tensor.name + "': " + axes[i] + " " +
                 std::to_string(tensor.shape[i]) + " is outside " + std::to_string(lowest) + ".." +
                 std::to_string(highest[i]));
    }
  }
  return {};
}

// Planes of each layer, found by name.
struct LayerTensors {
  const TensorInfo* k = nullptr;
  const TensorInfo* v = nullptr;
};

Result<std::vector<LayerTensors>> FindLayers(const SafetensorsReader& file) {
  std::vector<LayerTensors> layers;
  for (const auto& tensor : file.tensors()) {
    const auto name = ParsePlaneName(tensor.name);
    if (!name) continue;
    if (name->layer >= kMaxLayers) {
      return Bad("tensor '" + tensor.name + "': layer is above " + std::to_string(kMaxLayers - 1));
    }
    if (name->layer >= layers.size()) layers.resize(name->layer + 1);
    auto& layer = layers[name->layer];
    (name->kind == PlaneKind::kKey ? layer.k : layer.v) = &tensor;
  }
  if (layers.empty()) return Bad("has no tensors named k.<layer> and v.<layer>");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].k == nullptr) return Bad("has no tensor 'k." + std::to_string(i) + "'");
  }
  return layers;
}

Result<KvFileInfo> ReadInfo(const SafetensorsReader& file, const std::vector<LayerTensors>& found) {
  KvFileInfo info;
  KVSERVE_ASSIGN(info.geometry.dtype, DTypeOfSafetensors(found[0].k->dtype));
  for (const auto& tensors : found) {
    for (const TensorInfo* tensor : {tensors.k, tensors.v}) {
      if (tensor == nullptr) continue;
      KVSERVE_TRY(CheckPlane(*tensor));
      if (tensor->dtype != found[0].k->dtype) {
        return Bad("tensor '" + tensor->name + "' is " + tensor->dtype + ", 'k.0' is " +
                   found[0].k->dtype);
      }
      if (tensor->shape[0] != tensors.k->shape[0] || tensor->shape[1] != tensors.k->shape[1]) {
        return Bad("tensor '" + tensor->name + "' has other tokens or heads than '" +
                   tensors.k->name + "'");
      }
    }
    LayerGeometry layer;
    layer.kv_heads = static_cast<std::uint32_t>(tensors.k->shape[1]);
    layer.k_dim = static_cast<std::uint32_t>(tensors.k->shape[2]);
    if (tensors.v != nullptr) layer.v_dim = static_cast<std::uint32_t>(tensors.v->shape[2]);
    info.geometry.layers.push_back(layer);
    info.layer_tokens.push_back({0, static_cast<std::uint32_t>(tensors.k->shape[0])});
  }
  KVSERVE_TRY(ApplyKvMetadata(file.metadata(), info));
  if (auto status = CheckGeometry(info.geometry); !status) return Bad(status.error().message);
  return info;
}

TokenRange Intersect(TokenRange held, TokenRange asked) {
  const TokenRange both{std::max(held.begin, asked.begin), std::min(held.end, asked.end)};
  return both.begin < both.end ? both : TokenRange{asked.end, asked.end};
}

std::span<std::byte> PlaneBytes(const PlaneView& plane) {
  return {plane.data, plane.values() * DTypeBytes(plane.dtype)};
}

// Bytes of the plane as [token, head, dim]; copied to `scratch` unless they already lie so.
std::span<const std::byte> ContiguousBytes(const ConstPlaneView& plane,
                                           std::vector<std::byte>& scratch) {
  const std::size_t bytes = plane.values() * DTypeBytes(plane.dtype);
  if (plane.contiguous()) return {plane.data, bytes};
  scratch.resize(bytes);
  GatherBytes(plane, scratch);
  return scratch;
}

}  // namespace

Result<KvFileInfo> DescribeView(const ConstKvView& view) {
  KVSERVE_TRY(CheckView(view));
  KvFileInfo info;
  info.geometry = *view.geometry;
  info.tokens = view.tokens;
  if (view.layers.size() != info.geometry.layers.size()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "the chunk has " + std::to_string(view.layers.size()) + " of " +
                         std::to_string(info.geometry.layers.size()) + " layers");
  }
  for (const auto& layer : view.layers) info.layer_tokens.push_back(layer.tokens);
  return info;
}

std::uint64_t RawBytes(const KvFileInfo& info) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < info.layer_tokens.size(); ++i) {
    bytes += LayerBytes(info.geometry.layers[i], info.geometry.dtype, info.layer_tokens[i].size());
  }
  return bytes;
}

Result<Fingerprint> ParseFingerprint(std::string_view hex) {
  Fingerprint fingerprint;
  bool valid = hex.size() == 2 * fingerprint.bytes.size();
  for (std::size_t i = 0; valid && i < fingerprint.bytes.size(); ++i) {
    const char* const first = hex.data() + 2 * i;
    const auto [end, error] = std::from_chars(first, first + 2, fingerprint.bytes[i], 16);
    valid = error == std::errc() && end == first + 2;
  }
  if (!valid) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "fingerprint '" + std::string(hex) + "' is not 32 hexadecimal digits");
  }
  return fingerprint;
}

Result<KvFileReader> KvFileReader::Open(const std::string& path) {
  KVSERVE_ASSIGN(SafetensorsReader file, SafetensorsReader::Open(path));
  const auto read = [&](KvFileReader& reader) -> Status {
    KVSERVE_ASSIGN(const auto found, FindLayers(reader.file_));
    for (const auto& tensors : found) {
      reader.planes_.push_back(*tensors.k);
      reader.planes_.push_back(tensors.v != nullptr ? *tensors.v : TensorInfo{});
    }
    KVSERVE_ASSIGN(reader.info_, ReadInfo(reader.file_, found));
    return {};
  };
  KvFileReader reader(std::move(file));
  if (auto status = read(reader); !status) {
    const Error error = std::move(status).error();
    return MakeError(error.code, path + ": " + error.message);
  }
  return reader;
}

Status KvFileReader::Read(TokenRange tokens, KvBuffer& out) const {
  if (tokens.end < tokens.begin || tokens.begin < info_.tokens.begin ||
      tokens.end > info_.tokens.end) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "tokens " + std::to_string(tokens.begin) + ".." + std::to_string(tokens.end) +
                         " are not inside the file's " + std::to_string(info_.tokens.begin) + ".." +
                         std::to_string(info_.tokens.end));
  }
  std::vector<KvBuffer::LayerTokens> layers;
  for (std::uint32_t i = 0; i < info_.layer_tokens.size(); ++i) {
    layers.push_back({i, Intersect(info_.layer_tokens[i], tokens)});
  }
  KVSERVE_TRY(out.Resize(info_.geometry, tokens, layers));
  for (const auto& layer : out.view().layers) {
    if (layer.tokens.empty()) continue;
    const std::uint32_t skipped = layer.tokens.begin - info_.layer_tokens[layer.layer].begin;
    for (const auto* plane : {&layer.k, &layer.v}) {
      if (plane->data == nullptr) continue;
      const auto bytes = PlaneBytes(*plane);
      const std::uint64_t row_bytes = bytes.size() / layer.tokens.size();
      const auto& tensor = planes_[2 * layer.layer + (plane == &layer.v ? 1 : 0)];
      KVSERVE_TRY(file_.Read(tensor, skipped * row_bytes, bytes));
    }
  }
  return {};
}

Result<KvFileWriter> KvFileWriter::Create(const std::string& path, const KvFileInfo& info) {
  KVSERVE_TRY(CheckGeometry(info.geometry));
  if (info.layer_tokens.size() != info.geometry.layers.size()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "token ranges are given for " + std::to_string(info.layer_tokens.size()) +
                         " of " + std::to_string(info.geometry.layers.size()) + " layers");
  }
  std::vector<TensorShape> shapes;
  std::vector<std::size_t> first_tensor;
  std::uint64_t rows = 0;
  for (std::size_t i = 0; i < info.geometry.layers.size(); ++i) {
    const auto& layer = info.geometry.layers[i];
    const std::uint64_t tokens = info.layer_tokens[i].size();
    rows += tokens;
    first_tensor.push_back(shapes.size());
    shapes.push_back(
        {"k." + std::to_string(i), info.geometry.dtype, {tokens, layer.kv_heads, layer.k_dim}});
    if (layer.single_plane()) continue;
    shapes.push_back(
        {"v." + std::to_string(i), info.geometry.dtype, {tokens, layer.kv_heads, layer.v_dim}});
  }
  KVSERVE_ASSIGN(SafetensorsWriter file,
                 SafetensorsWriter::Create(path, shapes, FormatKvMetadata(info)));
  KvFileWriter writer(std::move(file), info);
  writer.first_tensor_ = std::move(first_tensor);
  writer.missing_rows_ = rows;
  return writer;
}

Status KvFileWriter::Write(const ConstKvView& chunk) {
  KVSERVE_TRY(CheckView(chunk));
  if (*chunk.geometry != info_.geometry) {
    return MakeError(ErrorCode::kMismatch, "the chunk's geometry differs from the file's");
  }
  std::vector<std::byte> scratch;
  for (const auto& layer : chunk.layers) {
    if (layer.tokens.empty()) continue;
    const TokenRange held = info_.layer_tokens[layer.layer];
    if (layer.tokens.begin < held.begin || layer.tokens.end > held.end ||
        layer.tokens.size() > missing_rows_) {
      return MakeError(ErrorCode::kMismatch, "layer " + std::to_string(layer.layer) + ": tokens " +
                                                 std::to_string(layer.tokens.begin) + ".." +
                                                 std::to_string(layer.tokens.end) +
                                                 " are not still to be written");
    }
    const std::uint64_t skipped = layer.tokens.begin - held.begin;
    std::size_t tensor = first_tensor_[layer.layer];
    for (const auto* plane : {&layer.k, &layer.v}) {
      if (plane->data == nullptr) continue;
      const auto bytes = ContiguousBytes(*plane, scratch);
      const std::uint64_t row_bytes = bytes.size() / layer.tokens.size();
      KVSERVE_TRY(file_.Write(tensor++, skipped * row_bytes, bytes));
    }
    missing_rows_ -= layer.tokens.size();
  }
  return {};
}

Status KvFileWriter::Commit() {
  if (missing_rows_ > 0) {
    return MakeError(ErrorCode::kInvalidArgument,
                     std::to_string(missing_rows_) + " token rows of the file were not written");
  }
  return file_.Commit();
}

Status WriteKvFile(const std::string& path, const ConstKvView& view, const KvFileInfo& info) {
  KVSERVE_ASSIGN(KvFileWriter writer, KvFileWriter::Create(path, info));
  KVSERVE_TRY(writer.Write(view));
  return writer.Commit();
}

}  // namespace kvserve
