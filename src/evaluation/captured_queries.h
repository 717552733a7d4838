// Queries of a prompt, kept for encoders that rank keys by attention.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/engine.h"
#include "kvserve/codec.h"

namespace kvserve {

// Of all tokens of a context: [token, head, dim] float32 per layer, after RoPE.
class CapturedQueries {
 public:
  [[nodiscard]] bool empty() const { return layers_.empty(); }
  [[nodiscard]] std::uint64_t bytes() const;
  // Valid while this is neither changed nor moved. `tokens` is the length of the context.
  [[nodiscard]] QueryView View(std::uint32_t tokens) const;

  // Makes `engine` add what it evaluates from now on, until Stop. kUnsupported from an engine that
  // does not show its queries. This must stay where it is until then.
  [[nodiscard]] Status Start(Engine& engine);
  void Stop(Engine& engine);

 private:
  struct Layer {
    std::uint32_t heads = 0;
    std::uint32_t dim = 0;
    std::vector<float> values;
  };
  std::map<std::uint32_t, Layer> layers_;
};

}  // namespace kvserve
