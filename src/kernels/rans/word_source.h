// The words of a stream for decoders that do not look at its end: groups of lanes run while there
// are words for a whole group, then in a copy of the last words in front of zeros, and what was
// taken beyond the end is found afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "kernels/rans/rans_kernels.h"

namespace kvserve {

class RansWordSource {
 public:
  // Reads `in` as long as this lives.
  explicit RansWordSource(std::span<const std::byte> in) : end_(in.data() + in.size()) {
    words.next = in.data();
    if (in.size() >= kMaxGroupBytes) {
      words.stop = end_ - kMaxGroupBytes;
    } else {
      Pad();
    }
  }
  RansWordSource(const RansWordSource&) = delete;
  RansWordSource& operator=(const RansWordSource&) = delete;

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
  static constexpr std::size_t kMaxGroupBytes = 2 * kMaxRansLanes + kRansReadAhead;

  const std::byte* end_;
  bool padded_ = false;
  std::array<std::byte, 2 * kMaxGroupBytes> tail_{};
};

}  // namespace kvserve
