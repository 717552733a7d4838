// Hands each layer's queries to a QueryTap while a graph is evaluated.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "kvserve/geometry.h"

namespace kvserve {

// Pass Callback and a recorder as cb_eval and cb_eval_user_data; it does nothing but between Begin
// and End. One thread at a time.
class QueryRecorder {
 public:
  static bool Callback(ggml_tensor* tensor, bool ask, void* user_data);

  // `model_layers`: of each layer of the geometry, its number in the graph's names.
  void SetLayers(const KvGeometry& geometry, const std::vector<std::uint32_t>& model_layers);
  void SetTap(QueryTap tap) { tap_ = std::move(tap); }
  void Begin(std::uint32_t first_position, std::size_t tokens);
  // Layers that were not rotated are handed over now; none when evaluation failed.
  void End(bool evaluated);

 private:
  struct Layer {
    std::uint32_t index = 0;  // in the geometry
    std::uint32_t dim = 0;
  };
  void Record(const ggml_tensor& tensor, const Layer& layer);
  void Hand(const Layer& layer, const std::vector<float>& values, bool rotated) const;

  std::map<std::uint32_t, Layer> layers_;  // by number in the graph
  QueryTap tap_;
  bool active_ = false;
  std::uint32_t first_position_ = 0;
  std::size_t tokens_ = 0;
  // By index: the value that the last step gave, of layers that are not rotated yet.
  std::map<std::uint32_t, std::vector<float>> waiting_;
};

}  // namespace kvserve
