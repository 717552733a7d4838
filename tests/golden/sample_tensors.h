// KV chunks made of integers alone, equal on every machine and compiler.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/view.h"

namespace kvserve::testing {

struct SampleChunk {
  KvBuffer buffer;
  std::uint32_t prompt_tokens = 0;
};

// Shapes by name:
//   plain    2 layers of 2 heads of 64, the first 6 tokens of a request
//   window   16 heads' worth of three kinds: all tokens, a window that holds 5 of 16 tokens, one
//   that
//            holds none
//   latent   one single-plane layer of 1 head of 100
//   dim80    3 heads of 80, 9 tokens
//   uneven   K of 192 and V of 128, only layers 2 and 3 of a model of 5
//   token    a single token of 1 head of 8
//   long     1 layer of 1 head of 16, 300 tokens
//   roped    3 layers of 2 heads of 8 and 6, 3 of 6 and 4 and 1 of 8, rotated in both ways and not,
//            tokens 1000 to 1014
//   cut      one single-plane layer of 1 head of 32, 17000 tokens of which every 512th is not zero:
//            codecs cut its symbols into pieces
// Channels differ in scale; one is zero, one constant, one holds outliers.
[[nodiscard]] Result<SampleChunk> MakeSampleChunk(std::string_view shape, DType dtype);

// The file of an artefact for this model (dtype and positions aside): statistics of every plane,
// two classes of tables for 8 and 16 symbols, and for models of planes up to 32 columns KLT, query
// statistics, head scores and what the transform chain needs. `compact`: matrices of few bits.
[[nodiscard]] Result<std::vector<std::byte>> MakeSampleCalibration(const KvGeometry& geometry,
                                                                   bool compact = false);

}  // namespace kvserve::testing
