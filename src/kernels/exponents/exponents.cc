#include "kernels/exponents/exponents.h"

#include <algorithm>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/exponents/exponents.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {

using Byte = std::uint8_t;

#if HWY_TARGET != HWY_SCALAR
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D16 = hn::ScalableTag<std::uint16_t>;
using I16 = hn::RebindToSigned<D16>;
using D32 = hn::RepartitionToWide<D16>;
using H16 = hn::Rebind<std::uint16_t, D32>;  // half as many as D16 has
using D8 = hn::Rebind<Byte, D16>;            // as many bytes as D16 has elements
using V8 = hn::Vec<D8>;
using V16 = hn::Vec<D16>;

// Vectors at any address.
template <class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const Byte* from) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<Byte, D>(), from));
}
template <class D>
HWY_INLINE void StoreBytes(D /*d*/, hn::Vec<D> v, Byte* to) {
  const hn::Repartition<Byte, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, to);
}

HWY_INLINE void Split(V16 h, Byte* exponents, Byte* rest) {
  const D16 d;
  const V16 exponent = hn::And(hn::ShiftRight<7>(h), hn::Set(d, 0xFF));
  const V16 remainder =
      hn::Or(hn::And(hn::ShiftRight<8>(h), hn::Set(d, 0x80)), hn::And(h, hn::Set(d, 0x7F)));
  hn::StoreU(hn::DemoteTo(D8(), hn::BitCast(I16(), exponent)), D8(), exponents);
  hn::StoreU(hn::DemoteTo(D8(), hn::BitCast(I16(), remainder)), D8(), rest);
}

HWY_INLINE V16 Join(V8 exponents, V8 levels, V8 rest) {
  const D16 d;
  const V16 exponent = hn::PromoteTo(d, hn::Add(exponents, levels));
  const V16 remainder = hn::PromoteTo(d, rest);
  return hn::Or(hn::Or(hn::ShiftLeft<7>(exponent), hn::And(remainder, hn::Set(d, 0x7F))),
                hn::ShiftLeft<8>(hn::And(remainder, hn::Set(d, 0x80))));
}

// Upper and lower 16 bits of two vectors of 32-bit elements.
HWY_INLINE V16 Upper(const Byte* elements) {
  const D32 d;
  const hn::RebindToSigned<D32> di;
  const std::size_t bytes = 4 * hn::Lanes(d);
  const auto a = hn::BitCast(di, hn::ShiftRight<16>(LoadBytes(d, elements)));
  const auto b = hn::BitCast(di, hn::ShiftRight<16>(LoadBytes(d, elements + bytes)));
  return hn::Combine(D16(), hn::DemoteTo(H16(), b), hn::DemoteTo(H16(), a));
}

HWY_INLINE V16 Lower(const Byte* elements) {
  const D32 d;
  const hn::RebindToSigned<D32> di;
  const std::size_t bytes = 4 * hn::Lanes(d);
  const auto mask = hn::Set(d, 0xFFFF);
  const auto a = hn::BitCast(di, hn::And(LoadBytes(d, elements), mask));
  const auto b = hn::BitCast(di, hn::And(LoadBytes(d, elements + bytes), mask));
  return hn::Combine(D16(), hn::DemoteTo(H16(), b), hn::DemoteTo(H16(), a));
}

HWY_INLINE void StoreWide(V16 upper, V16 lower, Byte* elements) {
  const D32 d;
  const hn::Half<D16> half;
  const auto join = [&](auto high, auto low) HWY_ATTR {
    return hn::Or(hn::ShiftLeft<16>(hn::PromoteTo(d, high)), hn::PromoteTo(d, low));
  };
  StoreBytes(d, join(hn::LowerHalf(half, upper), hn::LowerHalf(half, lower)), elements);
  StoreBytes(d, join(hn::UpperHalf(half, upper), hn::UpperHalf(half, lower)),
             elements + 4 * hn::Lanes(d));
}

// Sums of up to 256 rows fit 16 bits.
constexpr std::size_t kSumRows = 256;

HWY_INLINE void AddColumns(const Byte* bytes, std::size_t rows, std::size_t stride,
                           std::uint32_t* sums) {
  const D16 d;
  V16 sum = hn::Zero(d);
  for (std::size_t row = 0; row < rows; ++row) {
    sum = hn::Add(sum, hn::PromoteTo(d, hn::LoadU(D8(), bytes + row * stride)));
  }
  const D32 wide;
  const hn::Half<D16> half;
  const auto low = hn::PromoteTo(wide, hn::LowerHalf(half, sum));
  const auto high = hn::PromoteTo(wide, hn::UpperHalf(half, sum));
  std::uint32_t* upper = sums + hn::Lanes(wide);
  hn::StoreU(hn::Add(hn::LoadU(wide, sums), low), wide, sums);
  hn::StoreU(hn::Add(hn::LoadU(wide, upper), high), wide, upper);
}

}  // namespace

// Each returns how many leading elements, or columns, it did.
std::size_t Split16(const Byte* elements, std::size_t count, Byte* exponents, Byte* rest) {
  const std::size_t lanes = hn::Lanes(D16());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Split(LoadBytes(D16(), elements + 2 * i), exponents + i, rest + i);
  }
  return i;
}

std::size_t Split32(const Byte* elements, std::size_t count, Byte* exponents, Byte* rest,
                    Byte* low) {
  const std::size_t lanes = hn::Lanes(D16());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Split(Upper(elements + 4 * i), exponents + i, rest + i);
    StoreBytes(D16(), Lower(elements + 4 * i), low + 2 * i);
  }
  return i;
}

std::size_t Join16(const Byte* exponents, const Byte* levels, const Byte* rest, std::size_t rows,
                   std::size_t columns, Byte* elements) {
  const std::size_t lanes = hn::Lanes(D16());
  const std::size_t whole = columns / lanes * lanes;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * columns;
    for (std::size_t c = 0; c < whole; c += lanes) {
      const V16 h = Join(hn::LoadU(D8(), exponents + at + c), hn::LoadU(D8(), levels + c),
                         hn::LoadU(D8(), rest + at + c));
      StoreBytes(D16(), h, elements + 2 * (at + c));
    }
  }
  return whole;
}

std::size_t Join32(const Byte* exponents, const Byte* levels, const Byte* rest, const Byte* low,
                   std::size_t rows, std::size_t columns, Byte* elements) {
  const std::size_t lanes = hn::Lanes(D16());
  const std::size_t whole = columns / lanes * lanes;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * columns;
    for (std::size_t c = 0; c < whole; c += lanes) {
      const V16 h = Join(hn::LoadU(D8(), exponents + at + c), hn::LoadU(D8(), levels + c),
                         hn::LoadU(D8(), rest + at + c));
      StoreWide(h, LoadBytes(D16(), low + 2 * (at + c)), elements + 4 * (at + c));
    }
  }
  return whole;
}

std::size_t AddBytes(const Byte* bytes, std::size_t rows, std::size_t columns,
                     std::uint32_t* sums) {
  const std::size_t lanes = hn::Lanes(D16());
  const std::size_t whole = columns / lanes * lanes;
  for (std::size_t row = 0; row < rows; row += kSumRows) {
    const std::size_t some = std::min(kSumRows, rows - row);
    for (std::size_t c = 0; c < whole; c += lanes) {
      AddColumns(bytes + row * columns + c, some, columns, sums + c);
    }
  }
  return whole;
}

std::size_t SubtractLevels(Byte* bytes, std::size_t rows, std::size_t columns, const Byte* levels) {
  const hn::ScalableTag<Byte> d;
  const std::size_t whole = columns / hn::Lanes(d) * hn::Lanes(d);
  for (std::size_t row = 0; row < rows; ++row) {
    Byte* at = bytes + row * columns;
    for (std::size_t c = 0; c < whole; c += hn::Lanes(d)) {
      hn::StoreU(hn::Sub(hn::LoadU(d, at + c), hn::LoadU(d, levels + c)), d, at + c);
    }
  }
  return whole;
}

#else

std::size_t Split16(const Byte*, std::size_t, Byte*, Byte*) {
  return 0;
}
std::size_t Split32(const Byte*, std::size_t, Byte*, Byte*, Byte*) {
  return 0;
}
std::size_t Join16(const Byte*, const Byte*, const Byte*, std::size_t, std::size_t, Byte*) {
  return 0;
}
std::size_t Join32(const Byte*, const Byte*, const Byte*, const Byte*, std::size_t, std::size_t,
                   Byte*) {
  return 0;
}
std::size_t AddBytes(const Byte*, std::size_t, std::size_t, std::uint32_t*) {
  return 0;
}
std::size_t SubtractLevels(Byte*, std::size_t, std::size_t, const Byte*) {
  return 0;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(Split16);
HWY_EXPORT(Split32);
HWY_EXPORT(Join16);
HWY_EXPORT(Join32);
HWY_EXPORT(AddBytes);
HWY_EXPORT(SubtractLevels);

namespace {

const std::uint8_t* Bytes(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}
std::uint8_t* Bytes(std::span<std::byte> bytes) {
  return reinterpret_cast<std::uint8_t*>(bytes.data());
}

std::size_t Rows(std::size_t values, std::size_t columns) {
  return columns == 0 ? 0 : values / columns;
}

// Calls visit(first element, first column) for the end of each row that vectors left over.
template <typename Visit>
void ForEachLeft(std::size_t values, std::size_t columns, std::size_t done, const Visit& visit) {
  if (done == columns) return;
  for (std::size_t row = 0; row < values; row += columns) visit(row + done, columns - done);
}

}  // namespace

void SplitExponents16(std::span<const std::byte> elements, std::span<std::uint8_t> exponents,
                      std::span<std::byte> rest) {
  std::size_t done = 0;
  if (!UseScalarKernels()) {
    done = HWY_DYNAMIC_DISPATCH(Split16)(Bytes(elements), exponents.size(), exponents.data(),
                                         Bytes(rest));
  }
  SplitExponents16Ref(elements.subspan(2 * done), exponents.subspan(done), rest.subspan(done));
}

void SplitExponents32(std::span<const std::byte> elements, std::span<std::uint8_t> exponents,
                      std::span<std::byte> rest, std::span<std::byte> low) {
  std::size_t done = 0;
  if (!UseScalarKernels()) {
    done = HWY_DYNAMIC_DISPATCH(Split32)(Bytes(elements), exponents.size(), exponents.data(),
                                         Bytes(rest), Bytes(low));
  }
  SplitExponents32Ref(elements.subspan(4 * done), exponents.subspan(done), rest.subspan(done),
                      low.subspan(2 * done));
}

void JoinExponents16(std::span<const std::uint8_t> exponents, std::span<const std::uint8_t> levels,
                     std::span<const std::byte> rest, std::span<std::byte> elements) {
  const std::size_t columns = levels.size();
  if (UseScalarKernels()) return JoinExponents16Ref(exponents, levels, rest, elements);
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(Join16)(exponents.data(), levels.data(), Bytes(rest),
                                   Rows(exponents.size(), columns), columns, Bytes(elements));
  ForEachLeft(exponents.size(), columns, done, [&](std::size_t at, std::size_t count) {
    JoinExponents16Ref(exponents.subspan(at, count), levels.subspan(done), rest.subspan(at, count),
                       elements.subspan(2 * at, 2 * count));
  });
}

void JoinExponents32(std::span<const std::uint8_t> exponents, std::span<const std::uint8_t> levels,
                     std::span<const std::byte> rest, std::span<const std::byte> low,
                     std::span<std::byte> elements) {
  const std::size_t columns = levels.size();
  if (UseScalarKernels()) return JoinExponents32Ref(exponents, levels, rest, low, elements);
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(Join32)(exponents.data(), levels.data(), Bytes(rest), Bytes(low),
                                   Rows(exponents.size(), columns), columns, Bytes(elements));
  ForEachLeft(exponents.size(), columns, done, [&](std::size_t at, std::size_t count) {
    JoinExponents32Ref(exponents.subspan(at, count), levels.subspan(done), rest.subspan(at, count),
                       low.subspan(2 * at, 2 * count), elements.subspan(4 * at, 4 * count));
  });
}

void AddByteColumns(std::span<const std::uint8_t> bytes, std::span<std::uint32_t> sums) {
  const std::size_t columns = sums.size();
  if (UseScalarKernels()) return AddByteColumnsRef(bytes, sums);
  const std::size_t done = HWY_DYNAMIC_DISPATCH(AddBytes)(bytes.data(), Rows(bytes.size(), columns),
                                                          columns, sums.data());
  ForEachLeft(bytes.size(), columns, done, [&](std::size_t at, std::size_t count) {
    AddByteColumnsRef(bytes.subspan(at, count), sums.subspan(done));
  });
}

void SubtractByteLevels(std::span<std::uint8_t> bytes, std::span<const std::uint8_t> levels) {
  const std::size_t columns = levels.size();
  if (UseScalarKernels()) return SubtractByteLevelsRef(bytes, levels);
  const std::size_t done = HWY_DYNAMIC_DISPATCH(SubtractLevels)(
      bytes.data(), Rows(bytes.size(), columns), columns, levels.data());
  ForEachLeft(bytes.size(), columns, done, [&](std::size_t at, std::size_t count) {
    SubtractByteLevelsRef(bytes.subspan(at, count), levels.subspan(done));
  });
}

}  // namespace kvserve
#endif
