#include "pipeline/class_coding.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "base/try.h"
#include "pipeline/token_classes.h"

namespace kvserve {
namespace {

constexpr unsigned kTableBits = 12;
constexpr std::uint32_t kLeastState = 1U << 16;
static_assert(kCodeClasses == kTokenClasses);

using Row = std::array<std::uint16_t, kCodeClasses>;

// The classes of a plane as far as it has them, counted from its last row: planes of a frame end at
// one token.
struct Column {
  std::uint32_t rows = 0;
  std::span<const std::uint8_t> classes;  // empty: all nominal
  [[nodiscard]] std::uint8_t FromEnd(std::uint32_t distance) const {
    if (distance >= rows) return kNoClass;
    return classes.empty() ? kNominalClass : classes[rows - 1 - distance];
  }
};

// The planes one layer before, K and V apart.
class PreviousLayer {
 public:
  // Of the next plane in coding order.
  [[nodiscard]] Column Before(const SymbolPlane& plane) const {
    const Last& last = last_[static_cast<std::size_t>(plane.kind)];
    return last.rows > 0 && last.layer + 1 == plane.layer ? Column{last.rows, last.classes}
                                                          : Column{};
  }
  void Passed(const SymbolPlane& plane) {
    last_[static_cast<std::size_t>(plane.kind)] = {plane.layer, plane.tokens, plane.token_classes};
  }

 private:
  struct Last {
    std::uint32_t layer = 0;
    std::uint32_t rows = 0;
    std::span<const std::uint8_t> classes;
  };
  std::array<Last, 2> last_;
};

std::uint32_t StartOf(const Row& row, std::uint8_t token_class) {
  std::uint32_t start = 0;
  for (std::uint8_t c = 0; c < token_class; ++c) start += row[c];
  return start;
}

const Row& RowOf(const CodeTables& tables, const SymbolPlane& plane, std::uint8_t before) {
  const std::size_t context = before < kCodeClasses ? before : kNoClass;
  return tables.classes[static_cast<std::size_t>(plane.kind)][context];
}

struct Interval {
  std::uint16_t start = 0;
  std::uint16_t frequency = 0;
};

// Those of all classes in coding order; false when a table lacks one.
bool ListIntervals(const CodeTables& tables, std::span<const SymbolPlane> planes,
                   std::span<Interval> intervals) {
  PreviousLayer previous;
  std::size_t at = 0;
  for (const SymbolPlane& plane : planes) {
    const Column before = previous.Before(plane);
    const Column own{plane.tokens, plane.token_classes};
    for (std::uint32_t left = plane.tokens; left-- > 0;) {
      const std::uint8_t token_class = own.FromEnd(left);
      if (token_class >= kCodeClasses) return false;
      const Row& row = RowOf(tables, plane, before.FromEnd(left));
      if (row[token_class] == 0) return false;
      intervals[at++] = {static_cast<std::uint16_t>(StartOf(row, token_class)), row[token_class]};
    }
    previous.Passed(plane);
  }
  return true;
}

std::size_t CountRows(std::span<const SymbolPlane> planes) {
  std::size_t rows = 0;
  for (const SymbolPlane& plane : planes) rows += plane.tokens;
  return rows;
}

tl::unexpected<Error> Corrupt(const char* what) {
  return MakeError(ErrorCode::kCorruptData, std::string("token classes: ") + what);
}

class Decoder {
 public:
  explicit Decoder(ByteReader& in) : in_(in) {}

  Status Begin() {
    KVSERVE_ASSIGN(state_, in_.Get<std::uint32_t>());
    return state_ >= kLeastState ? Status() : Corrupt("a state out of range");
  }
  Result<std::uint8_t> Next(const Row& row) {
    const std::uint32_t slot = state_ & ((1U << kTableBits) - 1);
    std::uint32_t start = 0;
    std::uint8_t token_class = 0;
    while (slot >= start + row[token_class]) {
      start += row[token_class];
      if (++token_class == kCodeClasses) return Corrupt("a slot beyond the table");
    }
    state_ = row[token_class] * (state_ >> kTableBits) + slot - start;
    if (state_ < kLeastState) {
      KVSERVE_ASSIGN(const auto word, in_.Get<std::uint16_t>());
      state_ = state_ << 16 | word;
    }
    return token_class;
  }
  [[nodiscard]] Status End() const {
    return state_ == kLeastState ? Status() : Corrupt("a stream that does not end where it began");
  }

 private:
  ByteReader& in_;
  std::uint32_t state_ = 0;
};

}  // namespace

bool WriteCodedClasses(const CodeTables& tables, std::span<const SymbolPlane> planes, Arena& arena,
                       ByteWriter& out) {
  const auto intervals = arena.Take<Interval>(CountRows(planes));
  if (!ListIntervals(tables, planes, intervals)) return false;
  const auto words = arena.Take<std::uint16_t>(intervals.size());  // at most one for each
  std::size_t first = words.size();
  std::uint64_t state = kLeastState;
  for (std::size_t i = intervals.size(); i-- > 0;) {
    const auto [start, frequency] = intervals[i];
    if (state >= std::uint64_t{frequency} << (32 - kTableBits)) {
      words[--first] = static_cast<std::uint16_t>(state);
      state >>= 16;
    }
    state = (state / frequency << kTableBits) + state % frequency + start;
  }
  out.Put(static_cast<std::uint32_t>(state));
  out.PutBytes(std::as_bytes(words.subspan(first)));
  return true;
}

Status ReadCodedClasses(const CodeTables& tables, ByteReader& in, std::span<SymbolPlane> planes) {
  Decoder decoder(in);
  KVSERVE_TRY(decoder.Begin());
  PreviousLayer previous;
  for (SymbolPlane& plane : planes) {
    const Column before = previous.Before(plane);
    plane.token_classes.clear();  // grows with what is read
    bool nominal = true;
    for (std::uint32_t left = plane.tokens; left-- > 0;) {
      KVSERVE_ASSIGN(const std::uint8_t token_class,
                     decoder.Next(RowOf(tables, plane, before.FromEnd(left))));
      plane.token_classes.push_back(token_class);
      nominal = nominal && token_class == kNominalClass;
    }
    if (nominal) plane.token_classes.clear();
    previous.Passed(plane);
  }
  return decoder.End();
}

}  // namespace kvserve
