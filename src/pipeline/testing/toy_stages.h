// Stages for tests of the pipeline: small, but together they use everything that the interfaces
// offer to the hardest known codec (token weights with memory, prediction from decoded planes,
// token classes with their own coding, escapes, contexts from earlier planes).
#pragma once

#include "pipeline/stage.h"

namespace kvserve::testing {

// Names and ids:
//   weigh        0x0101 selector   tokens louder than the request so far weigh more; has memory
//   scale        0x0201 transform  divides by a per-plane factor and a gain kept in side bytes
//   predict      0x0202 transform  feedback: from decoded K, V of the layer before, V also from K
//   none         0x0301 quantizer  native copy
//   lossless     0x0303 quantizer  native copy
//   classes      0x0304 quantizer  step by token class, first token raw, escapes; options
//                                  step, mode (midpoint, mean), clip
//   none         0x0401 codec      raw
//   rans         0x0403 codec      raw
//   context      0x0405 codec      Rice codes, parameter from class and an earlier plane's symbols
[[nodiscard]] StageTable ToyStages();

// Quantization step of a token of class `token_class` of the quantizer `classes`.
[[nodiscard]] float ToyStep(double step, std::uint8_t token_class);
inline constexpr std::uint8_t kToyRawClass = 254;

}  // namespace kvserve::testing
