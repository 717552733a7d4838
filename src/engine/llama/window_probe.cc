#include "engine/llama/window_probe.h"

#include <algorithm>
#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

// For each cache: does it still show the cell at `early` when the newest is at `late`?
Result<std::vector<bool>> EarlyKept(llama_context* context, const SequenceState& shape,
                                    std::uint32_t early, std::uint32_t late) {
  constexpr std::size_t kCells = 2;
  std::uint64_t widest = 0;
  for (const StateCache& cache : shape.caches) {
    for (const StateRows& rows : cache.keys) widest = std::max(widest, rows.row_bytes);
    for (const StateRows& rows : cache.values) widest = std::max(widest, rows.row_bytes);
  }
  const std::vector<std::byte> zeros(kCells * widest);
  SequenceState state = shape;
  for (StateCache& cache : state.caches) {
    cache.positions = {static_cast<std::int32_t>(early), static_cast<std::int32_t>(late)};
    for (auto* planes : {&cache.keys, &cache.values}) {
      for (StateRows& rows : *planes) rows.rows = std::span(zeros).first(kCells * rows.row_bytes);
    }
  }
  std::vector<std::byte> blob;
  KVSERVE_TRY(WriteState(state, blob));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(blob.data());
  if (llama_state_seq_set_data(context, bytes, blob.size(), 0) != blob.size()) {
    return MakeError(ErrorCode::kUnsupported, "cache layout: loading two made-up cells failed");
  }
  blob.resize(llama_state_seq_get_size(context, 0));
  blob.resize(llama_state_seq_get_data(context, reinterpret_cast<std::uint8_t*>(blob.data()),
                                       blob.size(), 0));
  llama_memory_seq_rm(llama_get_memory(context), 0, -1, -1);
  KVSERVE_ASSIGN(const auto saved, ParseState(blob, !shape.caches.front().values.empty()));
  std::vector<bool> kept;
  for (const StateCache& cache : saved.caches) kept.push_back(cache.positions.size() == kCells);
  if (kept.size() != shape.caches.size()) {
    return MakeError(ErrorCode::kUnsupported, "cache layout: the number of caches changes");
  }
  return kept;
}

}  // namespace

Result<std::vector<std::uint32_t>> ProbeWindows(llama_context* context, const SequenceState& shape,
                                                std::uint32_t window) {
  if (window < 2 || window >= kMaxTokens) {
    return MakeError(ErrorCode::kUnsupported,
                     "cache layout: a window of " + std::to_string(window) + " tokens");
  }
  KVSERVE_ASSIGN(const auto last_inside, EarlyKept(context, shape, 0, window - 1));
  KVSERVE_ASSIGN(const auto first_outside, EarlyKept(context, shape, 0, window));
  KVSERVE_ASSIGN(const auto slides, EarlyKept(context, shape, 1, window));
  std::vector<std::uint32_t> windows;
  for (std::size_t cache = 0; cache < last_inside.size(); ++cache) {
    if (!last_inside[cache] || !slides[cache]) {
      return MakeError(ErrorCode::kUnsupported, "cache layout: the window of cache " +
                                                    std::to_string(cache) + " is not the last " +
                                                    std::to_string(window) + " tokens");
    }
    windows.push_back(first_outside[cache] ? 0 : window);
  }
  return windows;
}

}  // namespace kvserve
