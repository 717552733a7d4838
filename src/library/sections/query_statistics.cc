// Mean and covariance of each layer's queries before RoPE; of a covariance the lower triangle, in
// version 2 as variances and correlations of 8 bits.
#include <cmath>
#include <string>

#include "library/sections/packed_values.h"
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

constexpr double kCorrelation = 127;  // as an integer, where it is 1

// sqrt(variance[i] variance[j]): what a correlation of 1 is.
double Spread(const float* matrix, std::size_t dim, std::size_t i, std::size_t j) {
  return std::sqrt(double{matrix[i * (dim + 1)]} * double{matrix[j * (dim + 1)]});
}

std::int8_t Correlation(const float* matrix, std::size_t dim, std::size_t i, std::size_t j) {
  const double spread = Spread(matrix, dim, i, j);
  const double value = spread > 0 ? kCorrelation * double{matrix[i * dim + j]} / spread : 0.0;
  return static_cast<std::int8_t>(std::lround(std::clamp(value, -kCorrelation, kCorrelation)));
}

void SetCorrelation(std::int8_t correlation, float* matrix, std::size_t dim, std::size_t i,
                    std::size_t j) {
  const double covariance = correlation * Spread(matrix, dim, i, j) / kCorrelation;
  matrix[i * dim + j] = matrix[j * dim + i] = static_cast<float>(covariance);
}

// By visit(matrix, i, j) for the entries below the diagonals.
template <typename Layer, typename Visit>
void ForEachBelow(Layer& layer, const Visit& visit) {
  for (std::size_t head = 0; head < layer.heads; ++head) {
    auto* const matrix = layer.covariance.data() + head * layer.dim * layer.dim;
    for (std::size_t i = 0; i < layer.dim; ++i) {
      for (std::size_t j = 0; j < i; ++j) visit(matrix, i, j);
    }
  }
}

bool Compact(const Contents& contents) {
  return std::ranges::any_of(contents.query_statistics, [](const QueryStatistics& layer) {
    return layer.heads != 0 && layer.rounded;
  });
}

void WriteCompact(const Contents& contents, ByteWriter& out) {
  for (const QueryStatistics& layer : contents.query_statistics) {
    out.PutVarint(layer.heads);
    out.PutBytes(std::as_bytes(std::span(layer.mean)));
    for (std::size_t i = 0; i < layer.heads * layer.dim; ++i) {
      out.Put(layer.covariance[i * layer.dim + i % layer.dim]);
    }
    ForEachBelow(layer, [&](const float* matrix, std::size_t i, std::size_t j) {
      out.Put(Correlation(matrix, layer.dim, i, j));
    });
  }
}

Status ReadCompactLayer(ByteReader& in, QueryStatistics& layer) {
  const std::size_t dim = layer.dim;
  layer.rounded = true;
  std::vector<float> variances;
  KVSERVE_TRY(ReadFloats(in, layer.heads * dim, variances));
  if (!AllFinite(variances)) return Wrong("a variance is not finite");
  if (std::ranges::any_of(variances, [](float value) { return value < 0; })) {
    return Wrong("a variance is negative");
  }
  std::vector<std::int8_t> correlations;
  KVSERVE_TRY(ReadValues(in, layer.heads * (Triangle(dim) - dim), correlations));
  if (auto fault = MatrixFault(correlations, kMostMatrixBits); !fault.empty()) return Wrong(fault);
  layer.covariance.resize(layer.heads * dim * dim);
  for (std::size_t i = 0; i < variances.size(); ++i) {
    layer.covariance[i * dim + i % dim] = variances[i];
  }
  auto next = correlations.begin();
  ForEachBelow(layer, [&](float* matrix, std::size_t i, std::size_t j) {
    SetCorrelation(*next++, matrix, dim, i, j);
  });
  return {};
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

Status ReadLayers(ByteReader& in, bool compact, Contents& contents) {
  contents.query_statistics.resize(contents.geometry.layers.size());
  for (std::size_t i = 0; i < contents.query_statistics.size(); ++i) {
    KVSERVE_ASSIGN(const auto heads, in.GetVarint());
    if (heads > kMaxHeads) return Wrong(std::to_string(heads) + " query heads are out of range");
    if (heads == 0) continue;
    QueryStatistics& layer = contents.query_statistics[i];
    layer.heads = static_cast<std::uint32_t>(heads);
    layer.dim = contents.geometry.layers[i].k_dim;
    KVSERVE_TRY(ReadFloats(in, std::size_t{layer.heads} * layer.dim, layer.mean));
    if (compact) {
      KVSERVE_TRY(ReadCompactLayer(in, layer));
      continue;
    }
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

void RoundCorrelations(QueryStatistics& layer) {
  ForEachBelow(layer, [&](float* matrix, std::size_t i, std::size_t j) {
    SetCorrelation(Correlation(matrix, layer.dim, i, j), matrix, layer.dim, i, j);
  });
  layer.rounded = layer.heads != 0;
}

const CalibrationSection& QueryStatisticsSection() {
  static const CalibrationSection section = {
      .kind = 5,
      .name = "query_statistics",
      .present = [](const Contents& contents) { return Present(contents) && !Compact(contents); },
      .write = Write,
      .read = [](ByteReader& in, Contents& to) { return ReadLayers(in, false, to); },
      .check = Check};
  return section;
}

const CalibrationSection& CompactQueryStatisticsSection() {
  static const CalibrationSection section = {
      .kind = 5,
      .name = "query_statistics",
      .version = 2,
      .present = Compact,
      .write = WriteCompact,
      .read = [](ByteReader& in, Contents& to) { return ReadLayers(in, true, to); },
      .check = Check};
  return section;
}

}  // namespace kvserve
