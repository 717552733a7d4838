#include "calibration/query_moments.h"

#include <algorithm>

#include "base/try.h"
#include "calibration/head_scores.h"
#include "calibration/unrotated_plane.h"
#include "pipeline/plane_order.h"

namespace kvserve {
namespace {

void AddRows(std::span<const float> rows, std::size_t columns, std::vector<double>& sum) {
  sum.resize(columns);
  for (std::size_t at = 0; at < rows.size(); at += columns) {
    for (std::size_t c = 0; c < columns; ++c) sum[c] += rows[at + c];
  }
}

std::vector<float> Mean(const std::vector<double>& sum, std::uint32_t count) {
  std::vector<float> mean;
  for (const double value : sum) mean.push_back(static_cast<float>(value / count));
  return mean;
}

}  // namespace

QueryMoments::QueryMoments(const KvGeometry& geometry)
    : geometry_(geometry), layers_(geometry.layers.size()) {}

void QueryMoments::AddQueries(std::uint32_t index, std::uint32_t first_position,
                              std::span<const float> values, std::uint32_t heads,
                              std::uint32_t dim) {
  const LayerGeometry& shape = geometry_.layers[index];
  if (heads == 0 || heads % shape.kv_heads != 0 || dim != shape.k_dim) return;
  if (first_position == 0) EndText(index);
  Layer& layer = layers_[index];
  if (!layer.all) layer.all.emplace(heads, dim);
  layer.heads = heads;
  const std::size_t columns = std::size_t{heads} * dim;
  const auto rows = values.subspan(first_position == 0 ? columns : 0);
  layer.all->Add(rows);
  AddRows(rows, columns, layer.query_sum);
  layer.query_tokens += static_cast<std::uint32_t>(values.size() / columns);
}

Status QueryMoments::AddKeys(const ConstKvView& chunk) {
  for (const auto& plane : CodingOrder(chunk)) {
    Layer& layer = layers_[plane.layer];
    // A window layer's chunk may lack its first tokens.
    const bool follows =
        chunk.tokens.begin == layer.key_tokens && chunk.tokens.end <= layer.query_tokens;
    if (plane.kind != PlaneKind::kKey || !follows) continue;
    KVSERVE_TRY(LoadUnrotated(geometry_, plane, floats_));
    const std::size_t columns = std::size_t{plane.view.heads} * plane.view.dim;
    const bool sink = plane.tokens.begin == 0 && !plane.tokens.empty();
    AddRows(std::span<const float>(floats_).subspan(sink ? columns : 0), columns, layer.key_sum);
    layer.key_rows += plane.tokens.size() - (sink ? 1 : 0);
    layer.key_tokens = chunk.tokens.end;
  }
  return {};
}

void QueryMoments::EndText(std::uint32_t index) {
  Layer& layer = layers_[index];
  const LayerGeometry& shape = geometry_.layers[index];
  if (layer.query_tokens > 1 && layer.key_rows > 0 && shape.rope_style != RopeStyle::kNone) {
    const auto scores = HeadScores(shape, Mean(layer.query_sum, layer.query_tokens - 1),
                                   Mean(layer.key_sum, layer.key_rows), layer.query_tokens);
    layer.score_sum.resize(shape.kv_heads);
    for (std::size_t head = 0; head < scores.size(); ++head) layer.score_sum[head] += scores[head];
    ++layer.texts;
  }
  layer.query_tokens = layer.key_tokens = layer.key_rows = 0;
  layer.query_sum.clear();
  layer.key_sum.clear();
}

void QueryMoments::Store(bool statistics, bool scores, CalibrationArtefact::Contents& contents) {
  std::vector<QueryStatistics> queries(layers_.size());
  std::vector<std::vector<float>> head_scores(layers_.size());
  bool any_queries = false;
  bool any_scores = false;
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    EndText(i);
    const Layer& layer = layers_[i];
    if (layer.all && layer.all->count() > 1) {
      const std::uint32_t dim = geometry_.layers[i].k_dim;
      queries[i] = {layer.heads, dim, layer.all->Mean(), layer.all->Covariance(dim)};
      any_queries = true;
    }
    for (const double sum : layer.score_sum) {
      head_scores[i].push_back(static_cast<float>(std::clamp(sum / layer.texts, 0.0, 1.0)));
      any_scores = true;
    }
  }
  if (statistics && any_queries) contents.query_statistics = std::move(queries);
  if (scores && any_scores) contents.head_scores = std::move(head_scores);
}

}  // namespace kvserve
