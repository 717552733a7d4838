#include "kernels/rans/rans_modes.h"

#include <algorithm>
#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

constexpr unsigned kBytesToCost = 19;  // bytes to 1/65536 bit

std::span<const std::uint64_t> CountsOf(const RansPlaneCosts& costs) {
  return std::span(costs.counts).first(costs.alphabet);
}

}  // namespace

void SentRansTables::Add(const RansTable& table) {
  Entry& entry = entries_[next_];
  entry = {&table, 255};
  while (table[entry.last_symbol] == 0) --entry.last_symbol;
  next_ = (next_ + 1) % kRansReusable;
  size_ = std::min(size_ + 1, kRansReusable);
}

void WeighRansModes(std::span<const RansTable> classes, std::uint64_t packed_bytes,
                    RansPlaneCosts& costs) {
  const auto counts = CountsOf(costs);
  costs.constant =
      std::count(counts.begin(), counts.end(), 0) + 1 == static_cast<std::ptrdiff_t>(counts.size());
  costs.packed = packed_bytes << kBytesToCost;
  costs.with_table = UINT64_MAX;
  costs.best_class = 0;
  costs.with_class = UINT64_MAX;
  if (costs.constant) return;
  costs.table = NormaliseCounts(counts);
  costs.with_table = CodeLength(counts, costs.table) +
                     (std::uint64_t{RansTableBytes(costs.table)} << kBytesToCost);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const std::uint64_t cost = CodeLength(counts, classes[c]);
    if (cost >= costs.with_class) continue;
    costs.best_class = static_cast<std::uint8_t>(c);
    costs.with_class = cost;
  }
}

RansMode WriteRansMode(const RansPlaneCosts& costs, std::span<const RansTable> classes,
                       SentRansTables& sent, ByteWriter& out) {
  const auto counts = CountsOf(costs);
  RansMode mode;
  if (costs.constant) {
    mode.byte = kRansConstant;
    const auto found = std::find_if(counts.begin(), counts.end(), [](auto n) { return n > 0; });
    mode.symbol = static_cast<std::uint8_t>(found - counts.begin());
    out.Put(mode.byte);
    out.Put(mode.symbol);
    return mode;
  }
  std::uint64_t cost = costs.packed;
  const auto consider = [&](std::size_t byte, std::uint64_t with, const RansTable& table) {
    if (with >= cost) return;
    cost = with;
    mode = {static_cast<std::uint8_t>(byte), 0, &table};
  };
  consider(kRansNewTable, costs.with_table, costs.table);
  for (std::size_t ago = 0; ago < sent.size(); ++ago) {
    if (!sent.Fits(ago, costs.alphabet)) continue;  // a decoder refuses it
    consider(kRansReuse + ago, CodeLength(counts, sent.ago(ago)), sent.ago(ago));
  }
  if (costs.with_class < cost && IsRansTable(classes[costs.best_class], costs.alphabet)) {
    consider(kRansCalibrated + std::size_t{costs.best_class}, costs.with_class,
             classes[costs.best_class]);
  }
  out.Put(mode.byte);
  if (mode.byte == kRansNewTable) {
    WriteRansTable(costs.table, out);
    sent.Add(costs.table);
  }
  return mode;
}

Result<RansMode> ReadRansMode(std::uint32_t alphabet, std::span<const RansTable> classes,
                              SentRansTables& sent, Arena& arena, ByteReader& in) {
  RansMode mode;
  KVSERVE_ASSIGN(mode.byte, in.Get<std::uint8_t>());
  if (mode.byte == kRansPacked) return mode;
  if (mode.byte == kRansConstant) {
    KVSERVE_ASSIGN(mode.symbol, in.Get<std::uint8_t>());
    if (mode.symbol < alphabet) return mode;
    return MakeError(ErrorCode::kCorruptData, "constant symbol " + std::to_string(mode.symbol) +
                                                  " in an alphabet of " + std::to_string(alphabet));
  }
  if (mode.byte == kRansNewTable) {
    KVSERVE_ASSIGN(const RansTable table, ReadRansTable(alphabet, in));
    mode.table = arena.New<RansTable>(table);
    sent.Add(*mode.table);
    return mode;
  }
  if (mode.byte >= kRansCalibrated) {
    const std::size_t number = mode.byte - std::size_t{kRansCalibrated};
    if (number >= classes.size() || !IsRansTable(classes[number], alphabet)) {
      return MakeError(ErrorCode::kCorruptData, "a plane names a class that is not calibrated");
    }
    mode.table = &classes[number];
    return mode;
  }
  const std::size_t ago = mode.byte - std::size_t{kRansReuse};
  if (ago >= sent.size()) {
    return MakeError(ErrorCode::kCorruptData, "a plane names a table that was not sent");
  }
  if (!sent.Fits(ago, alphabet)) {
    return MakeError(ErrorCode::kCorruptData, "a reused table exceeds the plane's alphabet");
  }
  mode.table = &sent.ago(ago);
  return mode;
}

}  // namespace kvserve
