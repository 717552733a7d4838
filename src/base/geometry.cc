#include "kvserve/geometry.h"

#include <algorithm>
#include <cmath>

namespace kvserve {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kFloat16, "float16", 2},
    {DType::kBFloat16, "bfloat16", 2},
    {DType::kFloat32, "float32", 4},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", 1},
    {DType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", 1},
    {DType::kFloat8E5M2, "float8_e5m2", 1},
    {DType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", 1},
    {DType::kUint8, "uint8", 1},
};

std::string DTypeNames() {
  std::string names;
  for (const auto& row : kDTypes) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

Status OutOfRange(std::size_t layer, const char* field, std::uint64_t value, std::uint64_t low,
                  std::uint64_t high) {
  return MakeError(ErrorCode::kInvalidArgument,
                   "layer " + std::to_string(layer) + ": " + field + " " + std::to_string(value) +
                       " is outside " + std::to_string(low) + ".." + std::to_string(high));
}

}  // namespace

std::size_t DTypeBytes(DType dtype) {
  for (const auto& row : kDTypes) {
    if (row.dtype == dtype) return row.bytes;
  }
  return 0;
}

std::string_view DTypeName(DType dtype) {
  for (const auto& row : kDTypes) {
    if (row.dtype == dtype) return row.name;
  }
  return "unknown";
}

Result<DType> ParseDType(std::string_view name) {
  for (const auto& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return MakeError(ErrorCode::kInvalidArgument,
                   "dtype '" + std::string(name) + "' is not one of " + DTypeNames());
}

Status CheckDTypeSupported(DType dtype) {
  if (DTypeBytes(dtype) > 0) return {};
  return MakeError(ErrorCode::kUnsupported, "dtype id " +
                                                std::to_string(static_cast<unsigned>(dtype)) +
                                                " is not supported; " + DTypeNames() + " are");
}

bool DTypeHoldsNumbers(DType dtype) {
  return DTypeBytes(dtype) > 0 && dtype != DType::kUint8;
}

bool Fingerprint::empty() const {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; });
}

std::string Fingerprint::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Status CheckLayerGeometry(const LayerGeometry& layer, std::size_t index) {
  if (layer.kv_heads < 1 || layer.kv_heads > kMaxHeads) {
    return OutOfRange(index, "kv_heads", layer.kv_heads, 1, kMaxHeads);
  }
  if (layer.k_dim < 1 || layer.k_dim > kMaxDim) {
    return OutOfRange(index, "k_dim", layer.k_dim, 1, kMaxDim);
  }
  if (layer.v_dim > kMaxDim) return OutOfRange(index, "v_dim", layer.v_dim, 0, kMaxDim);
  if (layer.window_tokens > kMaxTokens) {
    return OutOfRange(index, "window_tokens", layer.window_tokens, 0, kMaxTokens);
  }
  const auto style = static_cast<unsigned>(layer.rope_style);
  if (style > 2) return OutOfRange(index, "rope_style", style, 0, 2);
  const bool rotated = layer.rope_style != RopeStyle::kNone;
  if (!std::isfinite(layer.rope_theta) ||
      (rotated ? layer.rope_theta <= 0 : layer.rope_theta != 0)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "layer " + std::to_string(index) +
                         ": rope_theta must be positive with a rope style and 0 without");
  }
  return {};
}

Status CheckGeometry(const KvGeometry& geometry) {
  if (DTypeBytes(geometry.dtype) == 0) {
    return MakeError(
        ErrorCode::kInvalidArgument,
        "dtype id " + std::to_string(static_cast<unsigned>(geometry.dtype)) + " is unknown");
  }
  if (geometry.layers.empty() || geometry.layers.size() > kMaxLayers) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "layers " + std::to_string(geometry.layers.size()) + " is outside 1.." +
                         std::to_string(kMaxLayers));
  }
  for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
    if (auto status = CheckLayerGeometry(geometry.layers[i], i); !status) return status;
  }
  return {};
}

TokenRange TokensHeld(const LayerGeometry& layer, TokenRange tokens, std::uint32_t total_tokens) {
  if (layer.window_tokens == 0 || total_tokens <= layer.window_tokens) return tokens;
  const std::uint32_t first = total_tokens - layer.window_tokens;
  return {std::clamp(first, tokens.begin, tokens.end), tokens.end};
}

std::uint64_t LayerBytes(const LayerGeometry& layer, DType dtype, std::uint64_t tokens) {
  const std::uint64_t row =
      std::uint64_t{layer.kv_heads} * (std::uint64_t{layer.k_dim} + layer.v_dim);
  return tokens * row * DTypeBytes(dtype);
}

}  // namespace kvserve
