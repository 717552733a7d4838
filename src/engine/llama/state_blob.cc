#include "engine/llama/state_blob.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/byte_io.h"
#include "base/checked.h"
#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kMagic = 0xAF143CD8;
constexpr std::size_t kMaxCaches = 2;
constexpr std::uint64_t kMaxRowBytes = std::uint64_t{kMaxHeads} * kMaxDim * 4;

struct RowType {
  std::int32_t ggml;
  DType dtype;
};
// Values of ggml's type enum; quantized rows mix scales with values and are refused.
constexpr RowType kRowTypes[] = {
    {0, DType::kFloat32}, {1, DType::kFloat16}, {30, DType::kBFloat16}};

std::optional<DType> DTypeOfRow(std::int32_t ggml) {
  for (const RowType& type : kRowTypes) {
    if (type.ggml == ggml) return type.dtype;
  }
  return std::nullopt;
}

std::optional<std::int32_t> RowTypeOf(DType dtype) {
  for (const RowType& type : kRowTypes) {
    if (type.dtype == dtype) return type.ggml;
  }
  return std::nullopt;
}

tl::unexpected<Error> Refuse(const std::string& what, std::int64_t value,
                             const std::string& right) {
  return MakeError(ErrorCode::kUnsupported, "sequence state: " + what + " is " +
                                                std::to_string(value) + ", only " + right +
                                                " is understood");
}

tl::unexpected<Error> Corrupt(const std::string& what) {
  return MakeError(ErrorCode::kCorruptData, "sequence state: " + what);
}

Status ReadPositions(ByteReader& in, std::uint32_t cells, std::int32_t sequence,
                     std::vector<std::int32_t>& positions) {
  constexpr std::size_t kCellBytes = 12;
  if (in.remaining() / kCellBytes < cells) {
    return Corrupt(std::to_string(cells) + " cells do not fit into what is left");
  }
  positions.reserve(cells);
  for (std::uint32_t i = 0; i < cells; ++i) {
    KVSERVE_ASSIGN(const auto position, in.Get<std::int32_t>());
    KVSERVE_ASSIGN(const auto owners, in.Get<std::uint32_t>());
    KVSERVE_ASSIGN(const auto owner, in.Get<std::int32_t>());
    if (owners != 1) return Refuse("the sequence count of a cell", owners, "1");
    if (owner != sequence) return Refuse("the sequence of a cell", owner, std::to_string(sequence));
    if (position < 0 || position >= static_cast<std::int32_t>(kMaxTokens)) {
      return Corrupt("position " + std::to_string(position) + " is outside 0.." +
                     std::to_string(kMaxTokens - 1));
    }
    positions.push_back(position);
  }
  std::vector<std::int32_t> sorted = positions;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end()) return Corrupt("position " + std::to_string(*twice) + " twice");
  return {};
}

Result<StateRows> ReadRows(ByteReader& in, std::uint64_t cells) {
  KVSERVE_ASSIGN(const auto type, in.Get<std::int32_t>());
  const auto dtype = DTypeOfRow(type);
  if (!dtype) return Refuse("a row type", type, "0 (F32), 1 (F16) or 30 (BF16)");
  KVSERVE_ASSIGN(const auto row_bytes, in.Get<std::uint64_t>());
  if (row_bytes == 0 || row_bytes > kMaxRowBytes || row_bytes % DTypeBytes(*dtype) != 0) {
    return Corrupt("row size " + std::to_string(row_bytes) + " does not fit type " +
                   std::string(DTypeName(*dtype)));
  }
  const auto bytes = CheckedMul(row_bytes, cells);
  if (!bytes || *bytes > in.remaining()) {
    return Corrupt(std::to_string(cells) + " rows of " + std::to_string(row_bytes) +
                   " bytes do not fit into what is left");
  }
  KVSERVE_ASSIGN(const auto rows, in.GetBytes(*bytes));
  return StateRows{*dtype, row_bytes, rows};
}

Result<StateCache> ReadCache(ByteReader& in, std::int32_t sequence, bool has_values) {
  StateCache cache;
  KVSERVE_ASSIGN(const auto streams, in.Get<std::uint32_t>());
  if (streams != 1) return Refuse("the number of streams", streams, "1");
  KVSERVE_ASSIGN(const auto cells, in.Get<std::uint32_t>());
  if (cells == 0) return cache;
  KVSERVE_TRY(ReadPositions(in, cells, sequence, cache.positions));
  KVSERVE_ASSIGN(const auto transposed, in.Get<std::uint32_t>());
  if (transposed != 0) return Refuse("the transposed-values mark", transposed, "0");
  KVSERVE_ASSIGN(const auto layers, in.Get<std::uint32_t>());
  if (layers == 0 || layers > kMaxLayers) {
    return Corrupt(std::to_string(layers) + " layers, outside 1.." + std::to_string(kMaxLayers));
  }
  for (std::uint32_t i = 0; i < layers; ++i) {
    KVSERVE_ASSIGN(auto rows, ReadRows(in, cells));
    cache.keys.push_back(rows);
  }
  for (std::uint32_t i = 0; has_values && i < layers; ++i) {
    KVSERVE_ASSIGN(auto rows, ReadRows(in, cells));
    cache.values.push_back(rows);
  }
  return cache;
}

Status WriteRows(const StateRows& rows, std::size_t cells, ByteWriter& out) {
  const auto type = RowTypeOf(rows.dtype);
  if (!type || rows.rows.size() != cells * rows.row_bytes) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "sequence state: " + std::to_string(rows.rows.size()) + " bytes of " +
                         std::string(DTypeName(rows.dtype)) + " are not " + std::to_string(cells) +
                         " rows of " + std::to_string(rows.row_bytes));
  }
  out.Put(*type);
  out.Put(rows.row_bytes);
  out.PutBytes(rows.rows);
  return {};
}

}  // namespace

Result<SequenceState> ParseState(std::span<const std::byte> blob, bool has_values) {
  ByteReader in(blob);
  SequenceState state;
  KVSERVE_ASSIGN(const auto magic, in.Get<std::uint32_t>());
  if (magic != kMagic) return Refuse("the magic number", magic, std::to_string(kMagic));
  KVSERVE_ASSIGN(state.sequence, in.Get<std::int32_t>());
  while (in.remaining() > 0) {
    if (state.caches.size() == kMaxCaches) return Corrupt("bytes left over after two caches");
    KVSERVE_ASSIGN(auto cache, ReadCache(in, state.sequence, has_values));
    state.caches.push_back(std::move(cache));
  }
  if (state.caches.empty()) return Corrupt("no cache in it");
  return state;
}

Status WriteState(const SequenceState& state, std::vector<std::byte>& blob) {
  blob.clear();
  ByteWriter out(blob);
  out.Put(kMagic);
  out.Put(state.sequence);
  for (const StateCache& cache : state.caches) {
    out.Put(std::uint32_t{1});
    out.Put(static_cast<std::uint32_t>(cache.positions.size()));
    if (cache.positions.empty()) continue;
    for (const std::int32_t position : cache.positions) {
      out.Put(position);
      out.Put(std::uint32_t{1});
      out.Put(state.sequence);
    }
    out.Put(std::uint32_t{0});
    out.Put(static_cast<std::uint32_t>(cache.keys.size()));
    for (const StateRows& rows : cache.keys) {
      KVSERVE_TRY(WriteRows(rows, cache.positions.size(), out));
    }
    for (const StateRows& rows : cache.values) {
      KVSERVE_TRY(WriteRows(rows, cache.positions.size(), out));
    }
  }
  return {};
}

}  // namespace kvserve
