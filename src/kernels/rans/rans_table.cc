#include "kernels/rans/rans_table.h"

#include <algorithm>
#include <bit>

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

std::uint32_t LastSymbol(const RansTable& table) {
  std::uint32_t last = 255;
  while (table[last] == 0) --last;
  return last;
}

// Moves frequencies by one until they sum to kRansTotal, each time where the code length of the
// data suffers least (gains most, the lowest symbol among equals): the change is about
// count / (2 f +- 1). A heap, since a large alphabet of rare symbols takes many such steps.
class SumFixer {
 public:
  SumFixer(std::span<const std::uint64_t> counts, RansTable& table)
      : counts_(counts), table_(table) {
    std::int64_t missing = kRansTotal;
    for (std::size_t s = 0; s < counts.size(); ++s) missing -= table[s];
    if (missing == 0) return;
    direction_ = missing > 0 ? 1 : -1;
    for (std::size_t s = 0; s < counts.size(); ++s) {
      if (Movable(s)) heap_[size_++] = static_cast<std::uint8_t>(s);
    }
    const auto later = [this](std::uint8_t a, std::uint8_t b) { return Before(b, a); };
    std::make_heap(heap_.begin(), heap_.begin() + size_, later);
    for (; missing != 0; missing -= direction_) {
      std::pop_heap(heap_.begin(), heap_.begin() + size_, later);
      const std::uint8_t best = heap_[static_cast<std::size_t>(size_ - 1)];
      table_[best] = static_cast<std::uint16_t>(table_[best] + direction_);
      if (Movable(best)) {
        std::push_heap(heap_.begin(), heap_.begin() + size_, later);
      } else {
        --size_;
      }
    }
  }

 private:
  [[nodiscard]] bool Movable(std::size_t s) const {
    return counts_[s] > 0 && (direction_ > 0 || table_[s] > 1);
  }
  // Whether `a` is to be moved rather than `b`.
  [[nodiscard]] bool Before(std::uint8_t a, std::uint8_t b) const {
    const auto weight = [&](std::uint8_t s) {
      return static_cast<std::uint64_t>(2 * std::int64_t{table_[s]} + direction_);
    };
    const auto left = static_cast<unsigned __int128>(counts_[a]) * weight(b);
    const auto right = static_cast<unsigned __int128>(counts_[b]) * weight(a);
    if (left != right) return direction_ > 0 ? left > right : left < right;
    return a < b;
  }

  std::span<const std::uint64_t> counts_;
  RansTable& table_;
  std::int64_t direction_ = 1;
  std::array<std::uint8_t, 256> heap_{};
  std::ptrdiff_t size_ = 0;
};

}  // namespace

bool IsRansTable(const RansTable& table, std::uint32_t alphabet) {
  std::uint32_t sum = 0;
  std::uint32_t largest = 0;
  for (std::uint32_t s = 0; s < table.size(); ++s) {
    if (s >= alphabet && table[s] > 0) return false;
    sum += table[s];
    largest = std::max<std::uint32_t>(largest, table[s]);
  }
  return sum == kRansTotal && largest < kRansTotal;
}

RansTable NormaliseCounts(std::span<const std::uint64_t> counts) {
  std::uint64_t total = 0;
  for (const std::uint64_t count : counts) total += count;
  RansTable table{};
  for (std::size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] == 0) continue;
    const auto scaled = static_cast<std::uint64_t>(
        (static_cast<unsigned __int128>(counts[s]) * kRansTotal + total / 2) / total);
    table[s] = static_cast<std::uint16_t>(std::max<std::uint64_t>(scaled, 1));
  }
  SumFixer(counts, table);
  return table;
}

std::uint64_t CodeLength(std::span<const std::uint64_t> counts, const RansTable& table) {
  const auto& log2 = Log2Table();
  std::uint64_t length = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] == 0) continue;
    if (table[s] == 0) return UINT64_MAX;
    length += counts[s] * ((kRansBits << kFraction) - log2[table[s]]);
  }
  return length;
}

void WriteRansTable(const RansTable& table, ByteWriter& out) {
  const std::uint32_t last = LastSymbol(table);
  BitSink bits(out);
  bits.Put(last, 8);
  unsigned order = 0;
  for (std::uint32_t s = 0; s < last; ++s) {  // the last one is what is left of the total
    PutGolomb(table[s], order, bits);
    order = OrderAfter(table[s]);
  }
  bits.Flush();
}

std::size_t RansTableBytes(const RansTable& table) {
  const std::uint32_t last = LastSymbol(table);
  std::size_t bits = 8;
  unsigned order = 0;
  for (std::uint32_t s = 0; s < last; ++s) {
    const auto width = static_cast<unsigned>(std::bit_width(table[s] + (1U << order))) - 1;
    bits += 2 * width - order + 1;
    order = OrderAfter(table[s]);
  }
  return (bits + 7) / 8;
}

Result<RansTable> ReadRansTable(std::uint32_t alphabet, ByteReader& in) {
  BitSource bits(in);
  KVSERVE_ASSIGN(const auto last, bits.Get(8));
  if (last >= alphabet) {
    return MakeError(ErrorCode::kCorruptData, "a table's symbol is outside the alphabet");
  }
  RansTable table{};
  std::uint32_t left = kRansTotal;
  unsigned order = 0;
  for (std::uint32_t s = 0; s < last; ++s) {
    KVSERVE_ASSIGN(const auto frequency, GetGolomb(order, bits));
    if (frequency >= left) {
      return MakeError(ErrorCode::kCorruptData, "a table's frequencies exceed their total");
    }
    table[s] = static_cast<std::uint16_t>(frequency);
    left -= frequency;
    order = OrderAfter(frequency);
  }
  if (left == kRansTotal || !bits.padding_is_zero()) {
    return MakeError(ErrorCode::kCorruptData, "a table has one symbol or bits left over");
  }
  table[last] = static_cast<std::uint16_t>(left);
  return table;
}

}  // namespace kvserve
