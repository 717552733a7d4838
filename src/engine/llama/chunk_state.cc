#include "engine/llama/chunk_state.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::int64_t kAbsent = -1;

// Cell of each token of `tokens`, kAbsent where the cache has none.
std::vector<std::int64_t> CellsOf(const StateCache& cache, TokenRange tokens) {
  std::vector<std::int64_t> cells(tokens.size(), kAbsent);
  for (std::size_t cell = 0; cell < cache.positions.size(); ++cell) {
    const auto position = static_cast<std::uint32_t>(cache.positions[cell]);
    if (position >= tokens.begin && position < tokens.end) {
      cells[position - tokens.begin] = static_cast<std::int64_t>(cell);
    }
  }
  return cells;
}

// `plane` is contiguous; `cells` has one entry per token of it.
void CopyRows(const StateRows& rows, std::span<const std::int64_t> cells, const PlaneView& plane) {
  for (std::size_t first = 0; first < cells.size();) {
    std::size_t last = first + 1;  // cells mostly run in token order: copy whole runs
    while (last < cells.size() && cells[last] == cells[last - 1] + 1) ++last;
    std::memcpy(plane.data + first * rows.row_bytes,
                rows.rows.data() + static_cast<std::uint64_t>(cells[first]) * rows.row_bytes,
                (last - first) * rows.row_bytes);
    first = last;
  }
}

StateRows RowsOf(const ConstPlaneView& plane, std::uint64_t row_bytes,
                 std::vector<std::vector<std::byte>>& gathered) {
  StateRows rows{plane.dtype, row_bytes, {}};
  const std::size_t bytes = plane.tokens * row_bytes;
  if (plane.contiguous()) {
    rows.rows = std::span(plane.data, bytes);
    return rows;
  }
  std::vector<std::byte>& copy = gathered.emplace_back(bytes);
  const std::size_t width = DTypeBytes(plane.dtype);
  std::byte* to = copy.data();
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      for (std::uint32_t d = 0; d < plane.dim; ++d, to += width) {
        std::memcpy(to, plane.at(token, head, d), width);
      }
    }
  }
  rows.rows = copy;
  return rows;
}

tl::unexpected<Error> Mismatch(const std::string& what) {
  return MakeError(ErrorCode::kMismatch, "KV chunk: " + what);
}

std::string Describe(const LayerGeometry& layer) {
  return std::to_string(layer.kv_heads) + " heads, K " + std::to_string(layer.k_dim) + ", V " +
         std::to_string(layer.v_dim) + ", window " + std::to_string(layer.window_tokens) +
         ", rope style " + std::to_string(static_cast<unsigned>(layer.rope_style)) + ", theta " +
         std::to_string(layer.rope_theta);
}

Status CheckSameGeometry(const KvGeometry& chunk, const KvGeometry& model) {
  if (chunk.dtype != model.dtype) {
    return Mismatch("dtype " + std::string(DTypeName(chunk.dtype)) + ", this cache is " +
                    std::string(DTypeName(model.dtype)));
  }
  if (chunk.layers.size() != model.layers.size()) {
    return Mismatch(std::to_string(chunk.layers.size()) + " layers, this model has " +
                    std::to_string(model.layers.size()));
  }
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (chunk.layers[i] == model.layers[i]) continue;
    return Mismatch("layer " + std::to_string(i) + " has " + Describe(chunk.layers[i]) +
                    "; this model " + Describe(model.layers[i]));
  }
  return {};
}

std::string Text(TokenRange tokens) {
  return "[" + std::to_string(tokens.begin) + ", " + std::to_string(tokens.end) + ")";
}

}  // namespace

Status CopyFromState(const SequenceState& state, const CacheLayout& layout, KvBuffer& out) {
  const KvView view = out.view();
  for (std::size_t c = 0; c < layout.slots.size(); ++c) {
    const StateCache& cache = state.caches[c];
    const TokenRange held = view.layers[layout.slots[c].front()].tokens;
    if (held.empty()) continue;
    const std::vector<std::int64_t> cells = CellsOf(cache, held);
    const auto absent = std::ranges::find(cells, kAbsent);
    if (absent != cells.end()) {
      return MakeError(ErrorCode::kBadInput,
                       "cache " + std::to_string(c) + " no longer holds token " +
                           std::to_string(held.begin + (absent - cells.begin())));
    }
    for (std::size_t slot = 0; slot < layout.slots[c].size(); ++slot) {
      const LayerView& layer = view.layers[layout.slots[c][slot]];
      CopyRows(cache.keys[slot], cells, layer.k);
      if (layout.has_values) CopyRows(cache.values[slot], cells, layer.v);
    }
  }
  return {};
}

Status CheckChunk(const ConstKvView& chunk, const CacheLayout& layout) {
  KVSERVE_TRY(CheckView(chunk));
  KVSERVE_TRY(CheckSameGeometry(*chunk.geometry, layout.geometry));
  if (chunk.device != Device::kHost) {
    return MakeError(ErrorCode::kUnsupported, "KV chunk: only host memory can be injected");
  }
  if (chunk.tokens.empty()) return MakeError(ErrorCode::kInvalidArgument, "KV chunk: no tokens");
  if (chunk.layers.size() != layout.geometry.layers.size()) {
    return Mismatch(std::to_string(chunk.layers.size()) + " layers are present, all " +
                    std::to_string(layout.geometry.layers.size()) + " are needed");
  }
  for (std::size_t c = 0; c < layout.slots.size(); ++c) {
    const TokenRange held = chunk.layers[layout.slots[c].front()].tokens;
    for (const std::uint32_t layer : layout.slots[c]) {
      const TokenRange tokens = chunk.layers[layer].tokens;
      const bool complete =
          layout.window_tokens(c) > 0 ? tokens.end == chunk.tokens.end : tokens == chunk.tokens;
      if (tokens == held && complete) continue;
      return Mismatch("layer " + std::to_string(layer) + " holds tokens " + Text(tokens) + " of " +
                      Text(chunk.tokens) + ", layer " + std::to_string(layout.slots[c].front()) +
                      " " + Text(held));
    }
  }
  return {};
}

SequenceState StateOf(const ConstKvView& chunk, const CacheLayout& layout, std::int32_t sequence,
                      std::vector<std::vector<std::byte>>& gathered) {
  SequenceState state;
  state.sequence = sequence;
  for (const auto& slots : layout.slots) {
    StateCache& cache = state.caches.emplace_back();
    const TokenRange held = chunk.layers[slots.front()].tokens;
    for (std::uint32_t token = held.begin; token < held.end; ++token) {
      cache.positions.push_back(static_cast<std::int32_t>(token));
    }
    for (const std::uint32_t layer : slots) {
      cache.keys.push_back(RowsOf(chunk.layers[layer].k,
                                  RowBytes(layout.geometry, layer, PlaneKind::kKey), gathered));
      if (!layout.has_values) continue;
      cache.values.push_back(RowsOf(chunk.layers[layer].v,
                                    RowBytes(layout.geometry, layer, PlaneKind::kValue), gathered));
    }
  }
  return state;
}

}  // namespace kvserve
