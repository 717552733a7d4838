// The loops of the coder with a table per symbol, for one instruction set: they code one part, all
// of them the same words in the same order.
#pragma once

#include "kernels/rans/context_coder.h"

namespace kvserve {

struct ContextKernels {
  // From lane 0 on; returns how many symbols were decoded: all, or whole groups until words.stop.
  // Gives coded bytes: kContextEscape for escapes, and no offset.
  std::size_t (*decode)(const ContextTables& tables, unsigned lanes_log2, std::uint32_t* states,
                        std::span<const std::uint8_t> indices, std::uint8_t* coded,
                        RansWords& words);
  // From the last symbol to the first, words below `words` and escaped bytes below `escaped`.
  void (*encode)(const ContextTables& tables, unsigned lanes_log2, std::uint32_t* states,
                 const ContextPart& part, std::uint16_t*& words, std::uint8_t*& escaped);
  ContextLength (*measure)(const ContextTables& tables, const ContextPart& part);
};

[[nodiscard]] const ContextKernels& PortableContextKernels();
// Null where the build lacks them.
[[nodiscard]] const ContextKernels* Avx2ContextKernels();
[[nodiscard]] const ContextKernels* Avx512ContextKernels();

// Those of the instruction set in force.
[[nodiscard]] const ContextKernels& ActiveContextKernels();

}  // namespace kvserve
