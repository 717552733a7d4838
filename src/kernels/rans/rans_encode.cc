#include <array>
#include <cstring>

#include "kernels/rans/rans.h"
#include "kernels/rans/rans_kernels.h"

namespace kvserve {
namespace {

void FillTable(const RansTable& table, RansLayout layout, RansEncoderTable& encoder) {
  std::uint32_t start = 0;
  for (std::size_t s = 0; s < 256; ++s) {
    encoder.interval[s] = table[s] | start << 16;
    start += table[s];
  }
  encoder.use_alias = UsesAlias(table, layout);
  encoder.wide = false;
  if (!encoder.use_alias) return;
  const RansAlias alias = BuildAlias(table);
  encoder.wide = alias.buckets == 32;
  encoder.runs = RunsOf(alias);
  for (std::size_t run = 0; run < encoder.runs.count; ++run) {
    const bool last = run + 1 == encoder.runs.count;
    const std::size_t end = last ? kRansTotal : encoder.runs.begin[run + 1];
    for (std::size_t at = encoder.runs.begin[run]; at < end; ++at) {
      encoder.slots[at] = static_cast<std::uint16_t>(at + encoder.runs.shift[run]);
    }
  }
}

}  // namespace

std::size_t RansScratchWords(std::uint64_t code_length, std::uint64_t symbols,
                             unsigned lanes_log2) {
  // Coding a symbol multiplies the state by at most 17/16 * kRansTotal / frequency, so by 0.0875
  // bit more than its code length; every word takes 16 bits away.
  const std::uint64_t bits = (code_length >> 16) + symbols / 10;
  return static_cast<std::size_t>(bits / 16) + (std::size_t{3} << lanes_log2) + kRansWriteAhead + 2;
}

std::span<const std::byte> RansEncode(std::span<const RansPart> parts, unsigned lanes_log2,
                                      RansLayout layout, std::span<std::uint16_t> scratch) {
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  alignas(64) std::array<std::uint32_t, kMaxRansLanes> states;
  states.fill(kRansLow);
  const RansKernels& kernels = ActiveRansKernels();
  RansEncoderTable table;
  const RansTable* filled = nullptr;
  std::uint16_t* const end = scratch.data() + scratch.size();
  std::uint16_t* words = end;
  for (std::size_t p = parts.size(); p-- > 0;) {
    if (parts[p].table != filled) FillTable(*parts[p].table, layout, table);
    filled = parts[p].table;
    words = kernels.encode(table, lanes_log2, states.data(), parts[p].symbols, words);
  }
  words -= 2 * lanes;
  std::memcpy(words, states.data(), 4 * lanes);
  return std::as_bytes(std::span(words, end));
}

}  // namespace kvserve
