// How each plane of a frame is coded: packed, constant, or with a table that it brings along, that
// an earlier plane brought, or that both sides know from calibration. docs/FORMAT_STAGES.md has the
// bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/arena.h"
#include "base/byte_io.h"
#include "kernels/histogram/histogram.h"
#include "kernels/rans/rans_table.h"
#include "kvserve/error.h"

namespace kvserve {

// First byte of a plane. From kReuse on: the table that was sent that many tables ago (kReuse: the
// latest); from kCalibrated on: the class of that number.
inline constexpr std::uint8_t kRansPacked = 0;
inline constexpr std::uint8_t kRansConstant = 1;
inline constexpr std::uint8_t kRansNewTable = 2;
inline constexpr std::uint8_t kRansReuse = 3;
inline constexpr std::size_t kRansReusable = 16;
inline constexpr std::uint8_t kRansCalibrated = kRansReuse + kRansReusable;

struct RansMode {
  std::uint8_t byte = kRansPacked;
  std::uint8_t symbol = 0;           // kRansConstant
  const RansTable* table = nullptr;  // of a plane that goes to the stream
};

// The latest tables that were sent; they outlive it.
class SentRansTables {
 public:
  void Add(const RansTable& table);
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const RansTable& ago(std::size_t n) const { return *entry(n).table; }
  // Whether its symbols all lie below `alphabet`.
  [[nodiscard]] bool Fits(std::size_t n, std::uint32_t alphabet) const {
    return entry(n).last_symbol < alphabet;
  }

 private:
  struct Entry {
    const RansTable* table = nullptr;
    std::uint32_t last_symbol = 0;
  };
  [[nodiscard]] const Entry& entry(std::size_t n) const {
    return entries_[(next_ + kRansReusable - 1 - n) % kRansReusable];
  }

  std::array<Entry, kRansReusable> entries_;
  std::size_t next_ = 0;
  std::size_t size_ = 0;
};

// What a plane would cost by itself, in 1/65536 bit; UINT64_MAX: not possible.
struct RansPlaneCosts {
  SymbolCounts counts;
  std::uint32_t alphabet = 0;
  bool constant = false;
  std::uint64_t packed = 0;
  RansTable table;               // counted from the plane, unless it is constant
  std::uint64_t with_table = 0;  // table included
  std::uint8_t best_class = 0;
  std::uint64_t with_class = 0;
};

// From counts and alphabet, of a plane with at least one symbol. `classes` may be empty.
void WeighRansModes(std::span<const RansTable> classes, std::uint64_t packed_bytes,
                    RansPlaneCosts& costs);

// The cheapest mode, the lowest byte among equals, written to `out`. A new table is added to
// `sent`; `costs` and `classes` outlive both.
[[nodiscard]] RansMode WriteRansMode(const RansPlaneCosts& costs,
                                     std::span<const RansTable> classes, SentRansTables& sent,
                                     ByteWriter& out);

// Tables are kept in `arena`. kCorruptData for a mode that is not known, a table that was not sent,
// or symbols outside of the alphabet.
[[nodiscard]] Result<RansMode> ReadRansMode(std::uint32_t alphabet,
                                            std::span<const RansTable> classes,
                                            SentRansTables& sent, Arena& arena, ByteReader& in);

}  // namespace kvserve
