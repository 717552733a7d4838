#include "kernels/rans/rans_table.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/try.h"

namespace kvserve {
namespace {

constexpr unsigned kFraction = 16;  // of code lengths

// log2 of 1..kRansTotal in 1/65536, by repeated squaring.
std::uint32_t Log2(std::uint32_t value) {
  const auto whole = static_cast<unsigned>(std::bit_width(value)) - 1;
  std::uint64_t mantissa = std::uint64_t{value} << (31 - whole);  // [2^31, 2^32)
  std::uint32_t result = whole;
  for (unsigned i = 0; i < kFraction; ++i) {
    mantissa = mantissa * mantissa >> 31;
    const auto bit = static_cast<std::uint32_t>(mantissa >> 32);
    mantissa >>= bit;
    result = result << 1 | bit;
  }
  return result;
}

const std::array<std::uint32_t, kRansTotal + 1>& Log2Table() {
  static const auto table = [] {
    std::array<std::uint32_t, kRansTotal + 1> values{};
    for (std::uint32_t i = 1; i <= kRansTotal; ++i) values[i] = Log2(i);
    return values;
  }();
  return table;
}

// Bits, lowest first, then zeros to the end of the byte.
class BitSink {
 public:
  explicit BitSink(ByteWriter& out) : out_(out) {}
  void Put(std::uint32_t value, unsigned bits) {
    buffer_ |= std::uint64_t{value} << used_;
    for (used_ += bits; used_ >= 8; used_ -= 8, buffer_ >>= 8) {
      out_.Put(static_cast<std::uint8_t>(buffer_));
    }
  }
  void Flush() {
    if (used_ > 0) out_.Put(static_cast<std::uint8_t>(buffer_));
    used_ = 0;
  }

 private:
  ByteWriter& out_;
  std::uint64_t buffer_ = 0;
  unsigned used_ = 0;
};

class BitSource {
 public:
  explicit BitSource(ByteReader& in) : in_(in) {}
  Result<std::uint32_t> Get(unsigned bits) {
    while (available_ < bits) {
      KVSERVE_ASSIGN(const auto byte, in_.Get<std::uint8_t>());
      buffer_ |= std::uint64_t{byte} << available_;
      available_ += 8;
    }
    const auto value = static_cast<std::uint32_t>(buffer_ & ((std::uint64_t{1} << bits) - 1));
    buffer_ >>= bits;
    available_ -= bits;
    return value;
  }
  [[nodiscard]] bool padding_is_zero() const { return buffer_ == 0; }

 private:
  ByteReader& in_;
  std::uint64_t buffer_ = 0;
  unsigned available_ = 0;
};

// Exponential Golomb code of order k: neighbours have similar frequencies, so the order follows the
// frequency before.
void PutGolomb(std::uint32_t value, unsigned order, BitSink& out) {
  const std::uint32_t shifted = value + (1U << order);
  const auto width = static_cast<unsigned>(std::bit_width(shifted)) - 1;
  const unsigned prefix = width - order;
  out.Put((1U << prefix) - 1, prefix + 1);
  out.Put(shifted - (1U << width), width);
}

Result<std::uint32_t> GetGolomb(unsigned order, BitSource& in) {
  unsigned width = order;
  for (;; ++width) {
    KVSERVE_ASSIGN(const auto bit, in.Get(1));
    if (bit == 0) break;
    if (width > kRansBits) return MakeError(ErrorCode::kCorruptData, "a frequency is too large");
  }
  KVSERVE_ASSIGN(const auto low, in.Get(width));
  return low + (1U << width) - (1U << order);
}

unsigned OrderAfter(std::uint32_t frequency) {
  return static_cast<unsigned>(std::bit_width(frequency));
}

// Moves frequencies by one until they sum to kRansTotal, each time where the code length of the
// data suffers least (gains most): the change is about count / frequency.
void FixSum(const SymbolCounts& counts, const std::vector<std::uint8_t>& present,
            RansTable& table) {
  std::int64_t missing = kRansTotal;
  for (const auto s : present) missing -= table.frequency[s];
  const std::int64_t direction = missing > 0 ? 1 : -1;
  for (; missing != 0; missing -= direction) {
    int best = -1;
    for (const auto s : present) {
      if (direction < 0 && table.frequency[s] == 1) continue;
      if (best < 0) best = s;
      // Compares count[s] / (2 f[s] +- 1) with the best one's, without division.
      const auto weight = [&](int symbol) {
        return static_cast<std::uint64_t>(2 * std::int64_t{table.frequency[symbol]} + direction);
      };
      const auto left = static_cast<unsigned __int128>(counts[s]) * weight(best);
      const auto right = static_cast<unsigned __int128>(counts[best]) * weight(s);
      if (direction > 0 ? left > right : left < right) best = s;
    }
    table.frequency[best] = static_cast<std::uint16_t>(table.frequency[best] + direction);
  }
}

}  // namespace

SymbolCounts CountSymbols(std::span<const std::uint8_t> symbols) {
  // Four tables, so that runs of one symbol do not wait for their own stores.
  std::array<std::array<std::uint32_t, 256>, 4> partial{};
  SymbolCounts counts{};
  constexpr std::size_t kChunk = std::size_t{1} << 30;  // partial counts cannot overflow
  for (; !symbols.empty(); symbols = symbols.subspan(std::min(kChunk, symbols.size()))) {
    const auto chunk = symbols.first(std::min(kChunk, symbols.size()));
    std::size_t i = 0;
    for (; i + 4 <= chunk.size(); i += 4) {
      for (std::size_t j = 0; j < 4; ++j) ++partial[j][chunk[i + j]];
    }
    for (; i < chunk.size(); ++i) ++partial[0][chunk[i]];
    for (auto& part : partial) {
      for (std::size_t s = 0; s < 256; ++s) counts[s] += part[s];
      part.fill(0);
    }
  }
  return counts;
}

RansTable NormaliseCounts(const SymbolCounts& counts) {
  std::uint64_t total = 0;
  std::vector<std::uint8_t> present;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    total += counts[s];
    if (counts[s] > 0) present.push_back(static_cast<std::uint8_t>(s));
  }
  RansTable table;
  for (const auto s : present) {
    const auto scaled = static_cast<std::uint64_t>(
        (static_cast<unsigned __int128>(counts[s]) * kRansTotal + total / 2) / total);
    table.frequency[s] = static_cast<std::uint16_t>(std::max<std::uint64_t>(scaled, 1));
  }
  FixSum(counts, present, table);
  return table;
}

std::uint64_t CodeLength(const SymbolCounts& counts, const RansTable& table) {
  const auto& log2 = Log2Table();
  std::uint64_t length = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] == 0) continue;
    if (table.frequency[s] == 0) return UINT64_MAX;
    length += counts[s] * ((kRansBits << kFraction) - log2[table.frequency[s]]);
  }
  return length;
}

void WriteRansTable(const RansTable& table, ByteWriter& out) {
  std::uint32_t last = 255;
  while (table.frequency[last] == 0) --last;
  BitSink bits(out);
  bits.Put(last, 8);
  unsigned order = 0;
  for (std::uint32_t s = 0; s < last; ++s) {  // the last one is what is left of the total
    PutGolomb(table.frequency[s], order, bits);
    order = OrderAfter(table.frequency[s]);
  }
  bits.Flush();
}

Result<RansTable> ReadRansTable(std::uint32_t alphabet, ByteReader& in) {
  BitSource bits(in);
  KVSERVE_ASSIGN(const auto last, bits.Get(8));
  if (last >= alphabet) {
    return MakeError(ErrorCode::kCorruptData, "a table's symbol is outside the alphabet");
  }
  RansTable table;
  std::uint32_t left = kRansTotal;
  unsigned order = 0;
  for (std::uint32_t s = 0; s < last; ++s) {
    KVSERVE_ASSIGN(const auto frequency, GetGolomb(order, bits));
    if (frequency >= left) {
      return MakeError(ErrorCode::kCorruptData, "a table's frequencies exceed their total");
    }
    table.frequency[s] = static_cast<std::uint16_t>(frequency);
    left -= frequency;
    order = OrderAfter(frequency);
  }
  if (left == kRansTotal || !bits.padding_is_zero()) {
    return MakeError(ErrorCode::kCorruptData, "a table has one symbol or bits left over");
  }
  table.frequency[last] = static_cast<std::uint16_t>(left);
  return table;
}

}  // namespace kvserve
