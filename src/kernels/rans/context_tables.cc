#include "kernels/rans/context_tables.h"

#include <algorithm>
#include <numeric>

namespace kvserve {
namespace {

constexpr std::uint32_t kByteLength = 8U << kContextLengthBits;

std::uint16_t LengthOf(std::uint32_t frequency) {
  // As the code length of one such symbol in a plane, which counts 1/65536 bit.
  RansTable table{};
  table[0] = static_cast<std::uint16_t>(frequency);
  const std::array<std::uint64_t, 1> once = {1};
  constexpr unsigned kShift = 16 - kContextLengthBits;
  return static_cast<std::uint16_t>((CodeLength(once, table) + (1U << (kShift - 1))) >> kShift);
}

void FillTable(const RansTable& frequencies, std::span<std::uint32_t> intervals,
               std::span<std::uint16_t> lengths, std::uint8_t* symbols) {
  const std::uint16_t escape = LengthOf(frequencies[kContextEscape]);
  std::uint32_t start = 0;
  for (std::size_t s = 0; s < 256; ++s) {
    const std::uint32_t frequency = frequencies[s];
    const bool lacking = frequency == 0 || s == kContextEscape;
    intervals[s] = frequency | start << 16;
    lengths[s] = static_cast<std::uint16_t>(lacking ? (escape + kByteLength) | kContextEscaped
                                                    : LengthOf(frequency));
    std::fill_n(symbols + start, frequency, static_cast<std::uint8_t>(s));
    start += frequency;
  }
}

}  // namespace

Status FillContextTables(std::span<const RansTable, kContextTables> frequencies,
                         ContextTables& tables) {
  for (std::size_t t = 0; t < kContextTables; ++t) {
    const RansTable& table = frequencies[t];
    if (!IsRansTable(table, 256) || table[kContextEscape] == 0) {
      return MakeError(ErrorCode::kCorruptData,
                       "code table " + std::to_string(t) + " does not sum to 4096 with an escape");
    }
    FillTable(table, std::span(tables.intervals).subspan(t * 256, 256),
              std::span(tables.lengths).subspan(t * 256, 256),
              tables.symbols.data() + t * kRansTotal);
  }
  tables.lengths.back() = 0;
  std::fill(tables.symbols.end() - 3, tables.symbols.end(), std::uint8_t{0});
  return {};
}

}  // namespace kvserve
