// Tokens of a plane mostly have the classes of the plane before, and otherwise lie in stretches
// (sinks, a window) or scattered among few classes (tokens that attention looks at).
#include "pipeline/token_classes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

using Classes = std::vector<std::uint8_t>;

// How the classes of a plane are written.
enum class Form : std::uint8_t { kNominal = 0, kAsBefore = 1, kStretches = 2, kPacked = 3 };

tl::unexpected<Error> Corrupt(const std::string& what) {
  return MakeError(ErrorCode::kCorruptData, "token classes: " + what);
}

bool IsClass(std::uint8_t value) {
  return value < kTokenClasses || value == kDroppedToken;
}

// The rows at the end of the plane before; false when it has fewer.
bool SameAsBefore(const SymbolPlane& plane, const SymbolPlane* before) {
  if (before == nullptr || before->tokens < plane.tokens) return false;
  if (before->token_classes.empty()) return false;  // nominal, which plane is not
  return std::equal(plane.token_classes.begin(), plane.token_classes.end(),
                    before->token_classes.end() - plane.tokens);
}

// 1 for two classes, up to 4 for all.
unsigned BitsFor(std::size_t classes) {
  unsigned bits = 1;
  while ((std::size_t{1} << bits) < classes) ++bits;
  return bits;
}

std::size_t PackedBytes(std::size_t rows, unsigned bits) {
  return (rows * bits + 7) / 8;
}

// The classes that occur, ascending; returns how many.
std::size_t Occurring(const Classes& classes, std::array<std::uint8_t, kTokenClasses + 1>& list) {
  std::array<bool, 256> occurs{};
  for (const std::uint8_t value : classes) occurs[value] = true;
  std::size_t count = 0;
  for (unsigned value = 0; value < occurs.size(); ++value) {
    if (occurs[value]) list[count++] = static_cast<std::uint8_t>(value);
  }
  return count;
}

std::size_t VarintBytes(std::uint64_t value) {
  std::size_t bytes = 1;
  while ((value >>= 7) != 0) ++bytes;
  return bytes;
}

// visit(class, rows) of each stretch.
template <typename Visit>
void ForEachStretch(const Classes& classes, const Visit& visit) {
  for (std::size_t at = 0; at < classes.size();) {
    std::size_t end = at + 1;
    while (end < classes.size() && classes[end] == classes[at]) ++end;
    visit(classes[at], end - at);
    at = end;
  }
}

void WritePlane(const SymbolPlane& plane, const SymbolPlane* before, ByteWriter& out) {
  const Classes& classes = plane.token_classes;
  if (classes.empty()) return out.Put(static_cast<std::uint8_t>(Form::kNominal));
  if (SameAsBefore(plane, before)) return out.Put(static_cast<std::uint8_t>(Form::kAsBefore));
  std::size_t stretches = 0;
  ForEachStretch(classes, [&](std::uint8_t /*value*/, std::size_t rows) {
    stretches += 1 + VarintBytes(rows);
  });
  std::array<std::uint8_t, kTokenClasses + 1> list{};
  const std::size_t count = Occurring(classes, list);
  const unsigned bits = BitsFor(count);
  if (stretches <= 1 + count + PackedBytes(classes.size(), bits)) {
    out.Put(static_cast<std::uint8_t>(Form::kStretches));
    ForEachStretch(classes, [&](std::uint8_t value, std::size_t rows) {
      out.Put(value);
      out.PutVarint(rows);
    });
    return;
  }
  out.Put(static_cast<std::uint8_t>(Form::kPacked));
  out.Put(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) out.Put(list[i]);
  std::uint32_t pending = 0;
  unsigned filled = 0;
  for (const std::uint8_t value : classes) {
    const auto index = std::find(list.begin(), list.begin() + count, value) - list.begin();
    pending |= static_cast<std::uint32_t>(index) << filled;
    filled += bits;
    if (filled < 8) continue;
    out.Put(static_cast<std::uint8_t>(pending));
    pending >>= 8;
    filled -= 8;
  }
  if (filled > 0) out.Put(static_cast<std::uint8_t>(pending));
}

Status ReadStretches(ByteReader& in, SymbolPlane& plane) {
  plane.token_classes.clear();
  while (plane.token_classes.size() < plane.tokens) {
    KVSERVE_ASSIGN(const auto value, in.Get<std::uint8_t>());
    KVSERVE_ASSIGN(const auto rows, in.GetVarint());
    if (!IsClass(value)) return Corrupt("unknown class " + std::to_string(value));
    if (rows == 0 || rows > plane.tokens - plane.token_classes.size()) {
      return Corrupt("stretches of other tokens than the plane has");
    }
    plane.token_classes.insert(plane.token_classes.end(), static_cast<std::size_t>(rows), value);
  }
  return {};
}

Status ReadPacked(ByteReader& in, SymbolPlane& plane) {
  KVSERVE_ASSIGN(const auto count, in.Get<std::uint8_t>());
  if (count < 2 || count > kTokenClasses + 1) return Corrupt("wrong number of classes");
  std::array<std::uint8_t, kTokenClasses + 1> list{};
  for (std::size_t i = 0; i < count; ++i) {
    KVSERVE_ASSIGN(list[i], in.Get<std::uint8_t>());
    if (!IsClass(list[i]) || (i > 0 && list[i] <= list[i - 1])) return Corrupt("unsorted classes");
  }
  const unsigned bits = BitsFor(count);
  KVSERVE_ASSIGN(const auto packed, in.GetBytes(PackedBytes(plane.tokens, bits)));
  plane.token_classes.resize(plane.tokens);
  for (std::size_t row = 0; row < plane.tokens; ++row) {
    const std::size_t bit = row * bits;
    unsigned window = std::to_integer<unsigned>(packed[bit / 8]) >> (bit % 8);
    if (bit % 8 + bits > 8)
      window |= std::to_integer<unsigned>(packed[bit / 8 + 1]) << (8 - bit % 8);
    const unsigned index = window & ((1U << bits) - 1);
    if (index >= count) return Corrupt("index outside the list");
    plane.token_classes[row] = list[index];
  }
  return {};
}

Status ReadAsBefore(const SymbolPlane* before, SymbolPlane& plane) {
  if (before == nullptr || before->tokens < plane.tokens) {
    return Corrupt("no plane before has as many tokens");
  }
  if (before->token_classes.empty()) return {};
  plane.token_classes.assign(before->token_classes.end() - plane.tokens,
                             before->token_classes.end());
  return {};
}

}  // namespace

std::uint8_t TokenClassOf(float weight) {
  if (weight <= 0.0F) return kDroppedToken;
  int octave = 0;
  if (std::frexp(weight, &octave) < 0x1.6a09e6p-1F) --octave;  // sqrt(1/2)
  return static_cast<std::uint8_t>(std::clamp(octave + kNominalClass, 0, kTokenClasses - 1));
}

std::uint32_t LevelsOfClass(std::uint32_t levels, std::uint8_t token_class) {
  const int halves = static_cast<int>(token_class) - kNominalClass;
  const int whole = (halves - (halves & 1)) / 2;
  const double half = (halves & 1) != 0 ? 0x1.6a09e667f3bcdp+0 : 1.0;  // sqrt(2)
  const double steps = std::ceil((levels - 1) * std::ldexp(half, whole));
  return std::clamp(static_cast<std::uint32_t>(steps) + 1, 2U, 256U);
}

void WriteTokenClasses(std::span<const SymbolPlane> planes, ByteWriter& out) {
  const bool nominal = std::all_of(planes.begin(), planes.end(), [](const SymbolPlane& plane) {
    return plane.token_classes.empty();
  });
  if (nominal) return;
  const SymbolPlane* before = nullptr;
  for (const SymbolPlane& plane : planes) {
    if (plane.tokens == 0) continue;
    WritePlane(plane, before, out);
    before = &plane;
  }
}

Status ReadTokenClasses(ByteReader& in, std::span<SymbolPlane> planes) {
  if (in.remaining() == 0) return {};
  const SymbolPlane* before = nullptr;
  for (SymbolPlane& plane : planes) {
    if (plane.tokens == 0) continue;
    KVSERVE_ASSIGN(const auto form, in.Get<std::uint8_t>());
    switch (static_cast<Form>(form)) {
      case Form::kNominal: break;
      case Form::kAsBefore: KVSERVE_TRY(ReadAsBefore(before, plane)); break;
      case Form::kStretches: KVSERVE_TRY(ReadStretches(in, plane)); break;
      case Form::kPacked: KVSERVE_TRY(ReadPacked(in, plane)); break;
      default: return Corrupt("unknown form " + std::to_string(form));
    }
    before = &plane;
  }
  return {};
}

}  // namespace kvserve
