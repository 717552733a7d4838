#include <algorithm>
#include <array>
#include <cstring>

#include "base/try.h"
#include "kernels/rans/rans.h"
#include "kernels/rans/rans_kernels.h"
#include "kernels/rans/word_source.h"

namespace kvserve {
namespace {

void FillTable(const RansTable& table, RansLayout layout, RansDecoderTable& decoder) {
  decoder.use_alias = UsesAlias(table, layout);
  if (decoder.use_alias) {
    decoder.alias = BuildAlias(table);
    return;
  }
  std::size_t slot = 0;
  for (std::uint32_t s = 0; s < 256; ++s) {
    const std::uint32_t frequency = table[s];
    for (std::uint32_t offset = 0; offset < frequency; ++offset) {
      decoder.slots[slot++] = frequency | s << 12 | offset << 20;
    }
  }
}

}  // namespace

Status RansDecode(std::span<const std::byte> in, unsigned lanes_log2, RansLayout layout,
                  std::span<const MutableRansPart> parts) {
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  if (in.size() < 4 * lanes || in.size() % 2 != 0) {
    return MakeError(ErrorCode::kCorruptData, "the entropy-coded stream is short");
  }
  alignas(64) std::array<std::uint32_t, kMaxRansLanes> states;
  std::memcpy(states.data(), in.data(), 4 * lanes);
  RansWordSource source(in.subspan(4 * lanes));
  const RansKernels& kernels = ActiveRansKernels();
  RansDecoderTable table;
  const RansTable* filled = nullptr;
  for (const auto& part : parts) {
    if (part.table != filled) FillTable(*part.table, layout, table);
    filled = part.table;
    std::size_t done = 0;
    do {
      done += kernels.decode(table, lanes_log2, states.data(), part.symbols.subspan(done),
                             source.words);
    } while (done < part.symbols.size() && source.Pad());
    if (done < part.symbols.size()) {
      return MakeError(ErrorCode::kCorruptData, "the entropy-coded stream is short");
    }
  }
  const bool finished =
      std::all_of(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(lanes),
                  [](std::uint32_t x) { return x == kRansLow; });
  if (!finished || !source.ended()) {
    return MakeError(ErrorCode::kCorruptData,
                     "the entropy-coded stream does not end where it should");
  }
  return {};
}

}  // namespace kvserve
