// Mean and covariance of each layer's queries before RoPE; of a covariance the lower triangle.
#include <string>

#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

std::size_t Triangle(std::size_t dim) {
  return dim * (dim + 1) / 2;
}

bool Present(const Contents& contents) {
  return std::any_of(contents.query_statistics.begin(), contents.query_statistics.end(),
                     [](const QueryStatistics& layer) { return layer.heads != 0; });
}

void Write(const Contents& contents, ByteWriter& out) {
  for (const QueryStatistics& layer : contents.query_statistics) {
    out.PutVarint(layer.heads);
    out.PutBytes(std::as_bytes(std::span(layer.mean)));
    for (std::size_t row = 0; row * layer.dim < layer.covariance.size(); ++row) {
      const auto values = std::span(layer.covariance).subspan(row * layer.dim, layer.dim);
      out.PutBytes(std::as_bytes(values.first(row % layer.dim + 1)));
    }
  }
}

// Both halves of the symmetric matrices.
void Unfold(std::span<const float> triangles, QueryStatistics& layer) {
  const std::size_t dim = layer.dim;
  layer.covariance.resize(layer.heads * dim * dim);
  std::size_t at = 0;
  for (std::size_t head = 0; head < layer.heads; ++head) {
    float* const matrix = layer.covariance.data() + head * dim * dim;
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j <= i; ++j)
        matrix[i * dim + j] = matrix[j * dim + i] = triangles[at++];
    }
  }
}

Status Read(ByteReader& in, Contents& contents) {
  contents.query_statistics.resize(contents.geometry.layers.size());
  for (std::size_t i = 0; i < contents.query_statistics.size(); ++i) {
    KVSERVE_ASSIGN(const auto heads, in.GetVarint());
    if (heads > kMaxHeads) return Wrong(std::to_string(heads) + " query heads are out of range");
    if (heads == 0) continue;
    QueryStatistics& layer = contents.query_statistics[i];
    layer.heads = static_cast<std::uint32_t>(heads);
    layer.dim = contents.geometry.layers[i].k_dim;
    KVSERVE_TRY(ReadFloats(in, std::size_t{layer.heads} * layer.dim, layer.mean));
    std::vector<float> triangles;
    KVSERVE_TRY(ReadFloats(in, layer.heads * Triangle(layer.dim), triangles));
    Unfold(triangles, layer);
  }
  return {};
}

Status CheckLayer(const QueryStatistics& layer, const LayerGeometry& shape) {
  if (layer.heads == 0 && layer.mean.empty() && layer.covariance.empty()) return {};
  if (layer.heads == 0 || layer.heads > kMaxHeads || layer.heads % shape.kv_heads != 0 ||
      layer.dim != shape.k_dim) {
    return Wrong(std::to_string(layer.heads) + " query heads of " + std::to_string(layer.dim) +
                 " do not fit " + std::to_string(shape.kv_heads) + " KV heads of " +
                 std::to_string(shape.k_dim));
  }
  const std::size_t dim = layer.dim;
  if (layer.mean.size() != layer.heads * dim ||
      layer.covariance.size() != layer.heads * dim * dim) {
    return Wrong("sizes are not those of the query heads");
  }
  if (!AllFinite(layer.mean) || !AllFinite(layer.covariance)) {
    return Wrong("a value is not finite");
  }
  for (std::size_t head = 0; head < layer.heads; ++head) {
    const float* const matrix = layer.covariance.data() + head * dim * dim;
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (matrix[i * dim + j] != matrix[j * dim + i])
          return Wrong("a covariance is not symmetric");
      }
      if (matrix[i * dim + i] < 0) return Wrong("a variance is negative");
    }
  }
  return {};
}

Status Check(const Contents& contents) {
  const auto& layers = contents.geometry.layers;
  if (contents.query_statistics.size() != layers.size() || !Present(contents)) {
    return Wrong("there is no layer, or not one for each of the model's");
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (auto status = CheckLayer(contents.query_statistics[i], layers[i]); !status) {
      return Wrong("layer " + std::to_string(i) + ": " + status.error().message);
    }
  }
  return {};
}

}  // namespace

const CalibrationSection& QueryStatisticsSection() {
  static const CalibrationSection section = {.kind = 5,
                                             .name = "query_statistics",
                                             .present = Present,
                                             .write = Write,
                                             .read = Read,
                                             .check = Check};
  return section;
}

}  // namespace kvserve
