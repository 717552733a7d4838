#include "calibration/sensitivity.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "base/try.h"
#include "pipeline/plane_order.h"
#include "tensorfile/safetensors.h"

namespace kvserve {
namespace {

constexpr std::string_view kFormat = "1";

tl::unexpected<Error> Bad(const std::string& path, const std::string& what,
                          ErrorCode code = ErrorCode::kBadInput) {
  return MakeError(code, "sensitivity file " + path + ": " + what);
}

Result<std::string> Text(const std::string& path, const StringMap& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return Bad(path, "its metadata lack '" + std::string(key) + "'");
  return found->second;
}

Result<std::uint32_t> Number(const std::string& path, const StringMap& metadata, const char* key) {
  KVSERVE_ASSIGN(const std::string text, Text(path, metadata, key));
  std::uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && value >= 1 && value <= kMaxTokens) {
    return value;
  }
  return Bad(path, std::string(key) + " '" + text + "' is not a number of tokens");
}

Result<RopeStyle> Style(const std::string& path, const StringMap& metadata) {
  KVSERVE_ASSIGN(const std::string text, Text(path, metadata, "rope_style"));
  if (text == "none") return RopeStyle::kNone;
  if (text == "halves") return RopeStyle::kHalves;
  if (text == "interleaved") return RopeStyle::kInterleaved;
  return Bad(path, "rope_style '" + text + "' is none of halves, interleaved, none");
}

// Where channel `d` of a head, paired as `engine` has it, is in a head paired as `file` has it.
std::size_t ChannelInFile(std::size_t d, std::size_t dim, RopeStyle engine, RopeStyle file) {
  if (engine == file || dim % 2 != 0) return d;
  const std::size_t pairs = dim / 2;
  return file == RopeStyle::kHalves ? d / 2 + (d % 2) * pairs : 2 * (d % pairs) + d / pairs;
}

std::vector<float> Reordered(std::span<const float> from, std::size_t columns, std::size_t dim,
                             RopeStyle engine, RopeStyle file) {
  std::vector<std::size_t> at(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    at[c] = c / dim * dim + ChannelInFile(c % dim, dim, engine, file);
  }
  std::vector<float> to(from.size());
  for (std::size_t r = 0; r < columns; ++r) {
    for (std::size_t c = 0; c < columns; ++c) to[r * columns + c] = from[at[r] * columns + at[c]];
  }
  return to;
}

// Rounding leaves the two halves of a sum of products a little apart: both become their mean.
std::optional<std::string> MakeSymmetric(std::span<float> matrix, std::size_t columns) {
  float largest = 0;
  for (const float value : matrix) {
    if (!std::isfinite(value)) return "a value is not finite";
    largest = std::max(largest, std::abs(value));
  }
  for (std::size_t r = 0; r < columns; ++r) {
    if (matrix[r * columns + r] < 0) return "the diagonal has a negative value";
    for (std::size_t c = 0; c < r; ++c) {
      float& below = matrix[r * columns + c];
      float& above = matrix[c * columns + r];
      if (std::abs(below - above) > largest / 1000) return "it is not symmetric";
      below = above = below / 2 + above / 2;
    }
  }
  return std::nullopt;
}

Result<std::vector<float>> ReadPlane(const std::string& path, const SafetensorsReader& file,
                                     const std::string& name, std::size_t columns) {
  const TensorInfo* tensor = file.Find(name);
  if (tensor == nullptr) return Bad(path, "there is no tensor " + name, ErrorCode::kMismatch);
  if (tensor->dtype != "F32") return Bad(path, name + " is " + tensor->dtype + ", not F32");
  if (tensor->shape != std::vector<std::uint64_t>{columns, columns}) {
    return Bad(path,
               name + " is not [" + std::to_string(columns) + ", " + std::to_string(columns) +
                   "], as the model's heads would have it",
               ErrorCode::kMismatch);
  }
  std::vector<float> matrix(columns * columns);
  KVSERVE_TRY(file.Read(*tensor, 0, std::as_writable_bytes(std::span(matrix))));
  if (const auto wrong = MakeSymmetric(matrix, columns)) return Bad(path, name + ": " + *wrong);
  return matrix;
}

Status CheckRotation(const std::string& path, const KvGeometry& geometry, RopeStyle style) {
  for (std::uint32_t i = 0; i < geometry.layers.size(); ++i) {
    const RopeStyle engine = geometry.layers[i].rope_style;
    if ((engine == RopeStyle::kNone) == (style == RopeStyle::kNone)) continue;
    return Bad(path,
               style == RopeStyle::kNone
                   ? "its keys are not rotated back, " + PlaneName(i, PlaneKind::kKey) + " is"
                   : "its keys are those before RoPE, but how " + PlaneName(i, PlaneKind::kKey) +
                         " is rotated is not known here (scaled frequencies, for example)",
               ErrorCode::kUnsupported);
  }
  return {};
}

}  // namespace

Result<Sensitivity> ReadSensitivity(const std::string& path, const KvGeometry& geometry) {
  KVSERVE_ASSIGN(const SafetensorsReader file, SafetensorsReader::Open(path));
  KVSERVE_ASSIGN(const std::string format, Text(path, file.metadata(), "kvserve.sensitivity"));
  if (format != kFormat) {
    return Bad(path, "its format " + format + " is not known", ErrorCode::kUnsupported);
  }
  Sensitivity found;
  KVSERVE_ASSIGN(found.context_tokens, Number(path, file.metadata(), "context_tokens"));
  KVSERVE_ASSIGN(found.scored_tokens, Number(path, file.metadata(), "scored_tokens"));
  KVSERVE_ASSIGN(const RopeStyle style, Style(path, file.metadata()));
  if (const auto source = file.metadata().find("source"); source != file.metadata().end()) {
    found.source = source->second;
  }
  KVSERVE_TRY(CheckRotation(path, geometry, style));
  std::size_t read = 0;
  for (std::uint32_t i = 0; i < geometry.layers.size(); ++i) {
    const LayerGeometry& layer = geometry.layers[i];
    const std::size_t key_columns = std::size_t{layer.kv_heads} * layer.k_dim;
    KVSERVE_ASSIGN(const auto keys, ReadPlane(path, file, "K." + std::to_string(i), key_columns));
    found.planes.push_back(Reordered(keys, key_columns, layer.k_dim, layer.rope_style, style));
    ++read;
    auto& values = found.planes.emplace_back();
    if (layer.single_plane()) continue;
    KVSERVE_ASSIGN(values, ReadPlane(path, file, "V." + std::to_string(i),
                                     std::size_t{layer.kv_heads} * layer.v_dim));
    ++read;
  }
  if (read != file.tensors().size()) {
    return Bad(path,
               "it has " + std::to_string(file.tensors().size()) + " tensors, the model's cache " +
                   std::to_string(read) + " planes",
               ErrorCode::kMismatch);
  }
  return found;
}

}  // namespace kvserve
