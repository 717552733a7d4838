// Integers of a few bits each, one after the other without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/byte_io.h"
#include "base/try.h"
#include "kvserve/error.h"
#include "library/transform_contents.h"

namespace kvserve {

// As value + MostOf(bits) in the lowest free bits of each byte; the last byte is filled with zeros.
// All values are within +-MostOf(bits).
inline void PutPacked(std::span<const std::int8_t> values, unsigned bits, ByteWriter& out) {
  unsigned pending = 0;
  unsigned filled = 0;
  for (const std::int8_t value : values) {
    pending |= static_cast<unsigned>(value + MostOf(bits)) << filled;
    filled += bits;
    if (filled < 8) continue;
    out.Put(static_cast<std::uint8_t>(pending));
    pending >>= 8;
    filled -= 8;
  }
  if (filled > 0) out.Put(static_cast<std::uint8_t>(pending));
}

// Nothing is allocated before the bytes are there. `count` below 2^60.
inline Status ReadPacked(ByteReader& in, std::size_t count, unsigned bits,
                         std::vector<std::int8_t>& out) {
  KVSERVE_ASSIGN(const auto bytes, in.GetBytes((count * bits + 7) / 8));
  out.resize(count);
  unsigned pending = 0;
  unsigned filled = 0;
  std::size_t at = 0;
  for (std::int8_t& value : out) {
    if (filled < bits) {
      pending |= static_cast<unsigned>(bytes[at++]) << filled;
      filled += 8;
    }
    const unsigned code = pending & ((1U << bits) - 1);
    if (code > static_cast<unsigned>(2 * MostOf(bits))) {
      return MakeError(ErrorCode::kCorruptData, "a value has no opposite of its bits");
    }
    value = static_cast<std::int8_t>(static_cast<int>(code) - MostOf(bits));
    pending >>= bits;
    filled -= bits;
  }
  if (pending != 0) return MakeError(ErrorCode::kCorruptData, "a matrix does not end with zeros");
  return {};
}

// Of a matrix that is there.
inline Result<std::uint8_t> CheckedBits(std::uint8_t bits) {
  if (bits >= kLeastMatrixBits && bits <= kMostMatrixBits) return bits;
  return MakeError(ErrorCode::kCorruptData, std::to_string(bits) + " bits per value are not 2..8");
}

}  // namespace kvserve
