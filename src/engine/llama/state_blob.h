// The byte form of one sequence's cache as llama.cpp saves it: parser and writer, no libllama
// needed.
//
//   uint32 magic, uint32 sequence, then per cache (one, or all-token layers and window layers):
//     uint32 streams (1), uint32 cells; nothing more when cells is 0
//     per cell: int32 position, uint32 sequences (1), int32 sequence
//     uint32 values-transposed (0), uint32 layers
//     per layer: int32 type, uint64 row bytes, cells rows of keys; then the same for all values
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"

namespace kvserve {

// Rows of one layer, [cell][row_bytes], in the order of StateCache::positions. Not owned.
struct StateRows {
  DType dtype = DType::kFloat16;
  std::uint64_t row_bytes = 0;
  std::span<const std::byte> rows;
};

struct StateCache {
  std::vector<std::int32_t> positions;  // [cell], each once, any order
  std::vector<StateRows> keys;          // [slot]; empty when there are no cells
  std::vector<StateRows> values;        // [slot], or empty: the model keeps no values (MLA)
};

struct SequenceState {
  std::int32_t sequence = 0;
  std::vector<StateCache> caches;
};

// Parses a whole blob; `rows` point into it. Hostile bytes are safe: every length is checked before
// use. kCorruptData: truncated, bytes left over, a position twice. kUnsupported: another magic,
// several streams, transposed values, an unknown row type, cells of several sequences.
[[nodiscard]] Result<SequenceState> ParseState(std::span<const std::byte> blob, bool has_values);

// Replaces `blob` by the bytes of `state`, which must be consistent (rows.size() = cells *
// row_bytes).
[[nodiscard]] Status WriteState(const SequenceState& state, std::vector<std::byte>& blob);

}  // namespace kvserve
