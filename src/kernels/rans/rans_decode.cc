// One table look-up per symbol; renormalisation without branches as in the encoder. While a whole
// group of lanes can take a word each, the end of the input needs no check per symbol.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/try.h"
#include "kernels/rans/rans.h"
#include "kernels/rans/rans_avx512.h"

namespace kvserve {
namespace {

constexpr std::size_t kMaxLanes = std::size_t{1} << kMaxRansLanesLog2;

// Per slot: symbol in bits 0..7, frequency in 8..19, slot - start in 20..31.
using DecoderTable = std::array<std::uint32_t, kRansTotal>;

void FillTable(const RansTable& table, DecoderTable& slots) {
  std::size_t slot = 0;
  for (std::uint32_t s = 0; s < 256; ++s) {
    const std::uint32_t frequency = table.frequency[s];
    for (std::uint32_t offset = 0; offset < frequency; ++offset) {
      slots[slot++] = s | frequency << 8 | offset << 20;
    }
  }
}

inline std::uint8_t Step(const DecoderTable& slots, std::uint32_t& x) {
  const std::uint32_t entry = slots[x % kRansTotal];
  x = (entry >> 8 & 0xFFFU) * (x >> kRansBits) + (entry >> 20);
  return static_cast<std::uint8_t>(entry);
}

inline std::uint32_t LoadWord(const std::byte* from) {
  std::uint16_t word = 0;
  std::memcpy(&word, from, 2);
  return word;
}

// Whole groups while words for every lane are left; returns the number of symbols decoded.
template <unsigned kLanesLog2>
std::size_t DecodeGroups(const DecoderTable& slots, std::uint32_t* states,
                         std::span<std::uint8_t> symbols, std::span<const std::byte>& in) {
  constexpr std::size_t kLanes = std::size_t{1} << kLanesLog2;
  const std::byte* words = in.data();
  const std::byte* const end = in.data() + in.size();
  std::size_t i = 0;
  for (; i + kLanes <= symbols.size(); i += kLanes) {
    if (static_cast<std::size_t>(end - words) < 2 * kLanes) break;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      std::uint32_t x = states[lane];
      symbols[i + lane] = Step(slots, x);
      const std::uint32_t refill = x < kRansLow ? 1 : 0;
      states[lane] = x << 16 * refill | (LoadWord(words) & (0U - refill));
      words += 2 * refill;
    }
  }
  in = {words, end};
  return i;
}

using DecodeFunction = std::size_t (*)(const DecoderTable&, std::uint32_t*, std::span<std::uint8_t>,
                                       std::span<const std::byte>&);
constexpr DecodeFunction kDecode[] = {DecodeGroups<0>, DecodeGroups<1>, DecodeGroups<2>,
                                      DecodeGroups<3>, DecodeGroups<4>, DecodeGroups<5>};

Status DecodeRest(const DecoderTable& slots, std::uint32_t* states, std::size_t lanes,
                  std::span<std::uint8_t> symbols, std::span<const std::byte>& in) {
  for (std::size_t i = 0; i < symbols.size(); ++i) {  // starts at lane 0
    std::uint32_t& x = states[i % lanes];
    symbols[i] = Step(slots, x);
    if (x >= kRansLow) continue;
    if (in.size() < 2)
      return MakeError(ErrorCode::kCorruptData, "the entropy-coded stream is short");
    x = x << 16 | LoadWord(in.data());
    in = in.subspan(2);
  }
  return {};
}

std::size_t DecodeGroupsWith(unsigned lanes_log2, bool avx512, const DecoderTable& slots,
                             std::uint32_t* states, std::span<std::uint8_t> symbols,
                             std::span<const std::byte>& in) {
  if (avx512) return RansDecodeAvx512(slots.data(), states, symbols, in);
  return kDecode[lanes_log2](slots, states, symbols, in);
}

}  // namespace

Status RansDecode(std::span<const std::byte> in, unsigned lanes_log2,
                  std::span<const MutableRansPart> parts) {
  const bool avx512 = UseRansAvx512(lanes_log2);
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  if (in.size() < 4 * lanes) {
    return MakeError(ErrorCode::kCorruptData, "the entropy-coded stream is short");
  }
  std::array<std::uint32_t, kMaxLanes> states{};
  std::memcpy(states.data(), in.data(), 4 * lanes);
  in = in.subspan(4 * lanes);
  DecoderTable slots;
  const RansTable* filled = nullptr;
  for (const auto& part : parts) {
    if (part.table != filled) FillTable(*part.table, slots);
    filled = part.table;
    const std::size_t done =
        DecodeGroupsWith(lanes_log2, avx512, slots, states.data(), part.symbols, in);
    KVSERVE_TRY(DecodeRest(slots, states.data(), lanes, part.symbols.subspan(done), in));
  }
  const bool ended =
      std::all_of(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(lanes),
                  [](std::uint32_t x) { return x == kRansLow; });
  if (!ended || !in.empty()) {
    return MakeError(ErrorCode::kCorruptData,
                     "the entropy-coded stream does not end where it should");
  }
  return {};
}

}  // namespace kvserve
