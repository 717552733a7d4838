// Records each layer's keys while a graph is evaluated, before and after rotation.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <map>
#include <vector>

namespace kvserve {

struct TappedKeys {
  std::vector<float> before;  // [token, head, dim]; the value that the last step started from
  std::vector<float> after;   // [token, head, dim]; what goes into the cache
  std::uint32_t heads = 0;
  std::uint32_t dim = 0;
  bool rotated = false;     // the last step was a rotation,
  float theta = 0.0F;       // with this base,
  bool whole_head = false;  // over all dimensions
};

// Pass Callback and a KeyTap as cb_eval and cb_eval_user_data.
class KeyTap {
 public:
  static bool Callback(ggml_tensor* tensor, bool ask, void* user_data);
  [[nodiscard]] const std::map<std::uint32_t, TappedKeys>& layers() const { return layers_; }

 private:
  void Record(const ggml_tensor& tensor, std::uint32_t layer);

  std::map<std::uint32_t, TappedKeys> layers_;  // by model layer
};

}  // namespace kvserve
