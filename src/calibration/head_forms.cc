#include "calibration/head_forms.h"

#include <Eigen/Dense>
#include <algorithm>

#include "kernels/rotate/rotate.h"

namespace kvserve {
namespace {

using FloatRows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr std::uint32_t kDistances = 64;

// Mean over distances of R form R^T.
FloatRows AverageRotation(const LayerGeometry& layer, const FloatRows& form, std::uint32_t tokens) {
  const std::uint32_t dim = layer.k_dim;
  if (layer.rope_style == RopeStyle::kNone || dim % 2 != 0) return form;
  std::vector<std::uint64_t> turns(RopePairs(dim));
  RopeTurns(layer.rope_theta, dim, turns);
  FloatRows sum = FloatRows::Zero(dim, dim);
  const std::uint32_t count = std::min(kDistances, tokens);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t distance = i * (tokens / count);
    FloatRows turned = form;
    for (int side = 0; side < 2; ++side) {
      const std::span<float> rows(turned.data(), static_cast<std::size_t>(turned.size()));
      ApplyRope(rows, {layer.rope_style, dim, dim, distance, turns});
      turned.transposeInPlace();
    }
    sum += turned;
  }
  return sum / static_cast<float>(count);
}

}  // namespace

std::vector<float> KeyForms(const LayerGeometry& layer, const QueryStatistics& queries,
                            std::span<const double> weights, std::uint32_t tokens) {
  const auto dim = static_cast<Eigen::Index>(queries.dim);
  const std::size_t block = std::size_t{queries.dim} * queries.dim;
  if (layer.window_tokens > 0) tokens = std::min(tokens, layer.window_tokens);
  std::vector<float> forms;
  const std::uint32_t group = queries.heads / layer.kv_heads;
  for (std::uint32_t kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
    FloatRows sum = FloatRows::Zero(dim, dim);
    for (std::uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const Eigen::Map<const Eigen::VectorXf> mean(
          queries.mean.data() + std::size_t{head} * queries.dim, dim);
      const Eigen::Map<const FloatRows> covariance(queries.covariance.data() + head * block, dim,
                                                   dim);
      sum +=
          static_cast<float>(weights[head] / queries.dim) * (covariance + mean * mean.transpose());
    }
    const FloatRows average = AverageRotation(layer, sum, tokens);
    forms.insert(forms.end(), average.data(), average.data() + average.size());
  }
  return forms;
}

std::vector<float> OutputForms(std::span<const float> weights, std::size_t inputs,
                               std::uint32_t v_dim) {
  const auto rows = static_cast<Eigen::Index>(weights.size() / inputs);
  const Eigen::Map<const FloatRows> all(weights.data(), rows, static_cast<Eigen::Index>(inputs));
  std::vector<float> forms;
  for (std::size_t begin = 0; begin < inputs; begin += v_dim) {
    const auto part = all.middleCols(static_cast<Eigen::Index>(begin), v_dim);
    const FloatRows form = part.transpose() * part;
    forms.insert(forms.end(), form.data(), form.data() + form.size());
  }
  return forms;
}

}  // namespace kvserve
