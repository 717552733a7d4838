#include "pipeline/frame_queries.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

Status Wrong(std::uint32_t layer, const std::string& what) {
  return MakeError(ErrorCode::kInvalidArgument,
                   "queries of layer " + std::to_string(layer) + " " + what);
}

Status CheckLayer(const QueryLayer& layer, const LayerGeometry& geometry, std::size_t tokens) {
  if (layer.dim != geometry.k_dim) {
    return Wrong(layer.layer, "have dim " + std::to_string(layer.dim) + " where keys have " +
                                  std::to_string(geometry.k_dim));
  }
  if (layer.heads == 0 || layer.heads % geometry.kv_heads != 0) {
    return Wrong(layer.layer, "have " + std::to_string(layer.heads) +
                                  " heads, which is no multiple of " +
                                  std::to_string(geometry.kv_heads) + " KV heads");
  }
  if (layer.values.size() != tokens * layer.heads * layer.dim) {
    return Wrong(layer.layer, "have " + std::to_string(layer.values.size()) +
                                  " values where [token, head, dim] is [" + std::to_string(tokens) +
                                  ", " + std::to_string(layer.heads) + ", " +
                                  std::to_string(layer.dim) + "]");
  }
  const bool finite = std::all_of(layer.values.begin(), layer.values.end(),
                                  [](float value) { return std::isfinite(value); });
  return finite ? Status() : Wrong(layer.layer, "are not all finite");
}

}  // namespace

Status CheckQueries(const Chain& chain, const ConstKvView& view, const QueryView* queries) {
  const StageInfo* const selector = chain.query_selector();
  if (selector == nullptr) return {};
  if (queries == nullptr || queries->tokens.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "selector '" + std::string(selector->name) +
                         "' ranks tokens by the prompt's queries, and none were given");
  }
  if (queries->tokens.begin > queries->tokens.end || queries->tokens.end > kMaxTokens) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "queries of tokens " + std::to_string(queries->tokens.begin) + " to " +
                         std::to_string(queries->tokens.end) + " are out of range");
  }
  for (const auto& layer : view.layers) {
    const QueryLayer* const found = FindQueries(*queries, layer.layer);
    if (found == nullptr) return Wrong(layer.layer, "were not given");
    KVSERVE_TRY(CheckLayer(*found, view.geometry->layers[layer.layer], queries->tokens.size()));
  }
  return {};
}

const QueryLayer* FindQueries(const QueryView& queries, std::uint32_t layer) {
  const auto found = std::find_if(queries.layers.begin(), queries.layers.end(),
                                  [&](const QueryLayer& entry) { return entry.layer == layer; });
  return found == queries.layers.end() ? nullptr : &*found;
}

}  // namespace kvserve
