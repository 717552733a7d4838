// Frames whose tokens have weights, without a selector that finds them: for tests of what honours
// weights.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvserve/view.h"
#include "pipeline/stage.h"

namespace kvserve::testing {

// The built-in stages and the selector `given` (0x01FF), which multiplies weights by 2^k, k drawn
// per token from -octaves..octaves, or by 0. Options: seed 0..1000 (1), octaves 0..9 (2),
// drop 0..1 (0: share of tokens), common (false: planes draw apart).
[[nodiscard]] StageTable WeighedStages();

// A frame of a chain in the short form over WeighedStages, coded by both executors, which must
// agree on every byte and value.
struct WeighedFrame {
  std::vector<std::vector<float>> weights;  // [plane][token] that the selectors gave
  std::vector<std::byte> classes, side, symbols;
  KvBuffer decoded;
  std::vector<std::uint8_t> dropped;  // [token] 1: dropped by every plane that holds it
  bool partly_dropped = false;
};
[[nodiscard]] WeighedFrame CodeWeighed(std::string_view chain, const ConstKvView& view,
                                       unsigned threads = 1);

// Sections of any bytes as a frame of this chain and of the view's shapes, by one of the executors.
enum class Executor { kReference, kFast };
[[nodiscard]] Status DecodeWeighed(std::string_view chain, const ConstKvView& view,
                                   const WeighedFrame& sections, Executor executor, KvBuffer& out);

}  // namespace kvserve::testing
