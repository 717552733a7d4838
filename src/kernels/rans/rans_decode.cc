// Groups of lanes run without looking at the end of the input: its last words are copied in front
// of zeros, and what was taken beyond them is found afterwards.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/try.h"
#include "kernels/rans/rans.h"
#include "kernels/rans/rans_kernels.h"

namespace kvserve {
namespace {

constexpr std::size_t kMaxGroupBytes = 2 * kMaxRansLanes + kRansReadAhead;

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

class WordSource {
 public:
  explicit WordSource(std::span<const std::byte> in) : end_(in.data() + in.size()) {
    words.next = in.data();
    if (in.size() >= kMaxGroupBytes) {
      words.stop = end_ - kMaxGroupBytes;
    } else {
      Pad();
    }
  }
  WordSource(const WordSource&) = delete;
  WordSource& operator=(const WordSource&) = delete;

  // Goes on in a copy of what is left, with zeros behind. False: it was already there.
  bool Pad() {
    if (padded_) return false;
    padded_ = true;
    const auto left = static_cast<std::size_t>(end_ - words.next);
    if (left > 0) std::memcpy(tail_.data(), words.next, left);
    words.next = tail_.data();
    words.stop = tail_.data() + left;
    return true;
  }
  [[nodiscard]] bool ended() const { return words.next == (padded_ ? words.stop : end_); }

  RansWords words;

 private:
  const std::byte* end_;
  bool padded_ = false;
  std::array<std::byte, 2 * kMaxGroupBytes> tail_{};
};

}  // namespace

Status RansDecode(std::span<const std::byte> in, unsigned lanes_log2, RansLayout layout,
                  std::span<const MutableRansPart> parts) {
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  if (in.size() < 4 * lanes || in.size() % 2 != 0) {
    return MakeError(ErrorCode::kCorruptData, "the entropy-coded stream is short");
  }
  alignas(64) std::array<std::uint32_t, kMaxRansLanes> states;
  std::memcpy(states.data(), in.data(), 4 * lanes);
  WordSource source(in.subspan(4 * lanes));
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
