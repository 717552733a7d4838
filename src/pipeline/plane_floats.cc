#include "pipeline/plane_floats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/convert/finite_convert.h"
#include "kernels/convert/magnitude.h"

namespace kvserve {
namespace {

// Magnitudes as bits, which order like the numbers, infinity and NaN last.
constexpr std::uint32_t kMagnitude = 0x7FFFFFFFU;

bool Above(std::uint32_t bits, float value) {
  return (std::bit_cast<std::uint32_t>(value) & kMagnitude) > bits;
}

std::optional<std::size_t> FindAbove(float bound, std::span<const float> values) {
  if (MagnitudesWithin(bound, values)) return std::nullopt;
  const auto bits = std::bit_cast<std::uint32_t>(bound);
  const auto first = std::find_if(values.begin(), values.end(),
                                  [bits](float value) { return Above(bits, value); });
  return static_cast<std::size_t>(first - values.begin());
}

bool HasNan(std::span<const float> values) {
  std::uint32_t found = 0;
  for (const float value : values) found |= value != value ? 1U : 0U;
  return found != 0;
}

// Some tokens of a plane.
template <typename Byte>
BasicPlaneView<Byte> Rows(BasicPlaneView<Byte> plane, std::uint32_t first, std::uint32_t tokens) {
  if (plane.data != nullptr) plane.data = plane.at(first, 0, 0);
  plane.tokens = tokens;
  return plane;
}

// Calls run(first element, index of its float, elements) for pieces that lie together in memory, of
// a plane whose dim_stride is 1. False if one of the calls gave false.
template <typename Byte, typename Run>
bool ForEachRun(const BasicPlaneView<Byte>& plane, const Run& run) {
  const std::size_t columns = std::size_t{plane.heads} * plane.dim;
  if (plane.contiguous()) return run(plane.data, 0, plane.values());
  const bool heads_together = plane.head_stride == plane.dim;
  bool good = true;
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    if (heads_together) {
      good &= run(plane.at(token, 0, 0), token * columns, columns);
      continue;
    }
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      good &= run(plane.at(token, head, 0), token * columns + head * plane.dim, plane.dim);
    }
  }
  return good;
}

// A block of one head of a plane whose elements are apart, as [token][dim] on the stack: the
// strided side is walked along its shorter stride, and the other one stays in L1.
constexpr std::uint32_t kBlockTokens = 32;
constexpr std::uint32_t kBlockDims = 64;

template <typename Byte>
struct Block {
  Byte* strided = nullptr;
  std::size_t index = 0;  // of its first float
  std::uint32_t tokens = 0;
  std::uint32_t dims = 0;
};

template <typename Byte, typename Visit>
bool ForEachBlock(const BasicPlaneView<Byte>& plane, const Visit& visit) {
  bool good = true;
  for (std::uint32_t head = 0; head < plane.heads; ++head) {
    for (std::uint32_t token = 0; token < plane.tokens; token += kBlockTokens) {
      for (std::uint32_t d = 0; d < plane.dim; d += kBlockDims) {
        const std::size_t row = std::size_t{token} * plane.heads + head;
        good &= visit(Block<Byte>{plane.at(token, head, d), row * plane.dim + d,
                                  std::min(kBlockTokens, plane.tokens - token),
                                  std::min(kBlockDims, plane.dim - d)});
      }
    }
  }
  return good;
}

template <typename Element>
using Tile = std::array<std::array<Element, kBlockDims>, kBlockTokens>;

// Calls copy(strided element, tile element) for the elements of a block.
template <typename Element, typename Byte, typename TileOf, typename Copy>
void ForEachElement(const BasicPlaneView<Byte>& plane, const Block<Byte>& block, TileOf& tile,
                    const Copy& copy) {
  const auto size = static_cast<std::int64_t>(sizeof(Element));
  const std::int64_t along_tokens = plane.token_stride * size;
  const std::int64_t along_dims = plane.dim_stride * size;
  if (std::abs(along_tokens) < std::abs(along_dims)) {
    for (std::uint32_t d = 0; d < block.dims; ++d) {
      Byte* at = block.strided + d * along_dims;
      for (std::uint32_t t = 0; t < block.tokens; ++t, at += along_tokens) copy(at, tile[t][d]);
    }
    return;
  }
  for (std::uint32_t t = 0; t < block.tokens; ++t) {
    Byte* at = block.strided + t * along_tokens;
    for (std::uint32_t d = 0; d < block.dims; ++d, at += along_dims) copy(at, tile[t][d]);
  }
}

template <typename Element>
bool LoadApart(const ConstPlaneView& plane, std::span<float> out) {
  const std::size_t columns = std::size_t{plane.heads} * plane.dim;
  return ForEachBlock(plane, [&](const Block<const std::byte>& block) {
    Tile<Element> tile;
    ForEachElement<Element>(plane, block, tile, [](const std::byte* from, Element& to) {
      std::memcpy(&to, from, sizeof(Element));
    });
    bool finite = true;
    for (std::uint32_t t = 0; t < block.tokens; ++t) {
      finite &= ToFloatFinite(plane.dtype, std::as_bytes(std::span(tile[t]).first(block.dims)),
                              out.subspan(block.index + t * columns, block.dims));
    }
    return finite;
  });
}

template <typename Element>
bool StoreApart(std::span<const float> values, const PlaneView& plane) {
  const std::size_t columns = std::size_t{plane.heads} * plane.dim;
  return ForEachBlock(plane, [&](const Block<std::byte>& block) {
    Tile<Element> tile;
    bool numbers = true;
    for (std::uint32_t t = 0; t < block.tokens; ++t) {
      numbers &= FromFloatFinite(plane.dtype, values.subspan(block.index + t * columns, block.dims),
                                 std::as_writable_bytes(std::span(tile[t]).first(block.dims)));
    }
    ForEachElement<Element>(plane, block, tile, [](std::byte* to, const Element& from) {
      std::memcpy(to, &from, sizeof(Element));
    });
    return numbers;
  });
}

template <typename Byte>
void FetchAll(const BasicPlaneView<Byte>& plane, std::uint32_t first_token, std::uint32_t tokens) {
  if (first_token >= plane.tokens || plane.dim_stride != 1) return;
  const auto rows = Rows(plane, first_token, std::min(tokens, plane.tokens - first_token));
  const std::size_t size = DTypeBytes(plane.dtype);
  (void)ForEachRun(rows, [&](Byte* from, std::size_t /*index*/, std::size_t count) {
    constexpr std::size_t kLine = 64;
    constexpr int kWrite = std::is_const_v<Byte> ? 0 : 1;
    for (std::size_t at = 0; at < count * size; at += kLine) __builtin_prefetch(from + at, kWrite);
    return true;
  });
}

}  // namespace

void FetchRows(const ConstPlaneView& plane, std::uint32_t first_token, std::uint32_t tokens) {
  FetchAll(plane, first_token, tokens);
}

void FetchRows(const PlaneView& plane, std::uint32_t first_token, std::uint32_t tokens) {
  FetchAll(plane, first_token, tokens);
}

bool LoadRows(const ConstPlaneView& plane, std::uint32_t first_token, std::uint32_t tokens,
              std::span<float> out) {
  const ConstPlaneView rows = Rows(plane, first_token, tokens);
  if (rows.values() == 0) return true;
  const std::size_t size = DTypeBytes(plane.dtype);
  if (rows.dim_stride == 1) {
    return ForEachRun(rows, [&](const std::byte* from, std::size_t index, std::size_t count) {
      return ToFloatFinite(plane.dtype, {from, count * size}, out.subspan(index, count));
    });
  }
  if (size == 1) return LoadApart<std::uint8_t>(rows, out);
  return size == 2 ? LoadApart<std::uint16_t>(rows, out) : LoadApart<std::uint32_t>(rows, out);
}

bool StoreRows(std::span<const float> values, const PlaneView& plane, std::uint32_t first_token,
               std::uint32_t tokens) {
  const PlaneView rows = Rows(plane, first_token, tokens);
  if (rows.values() == 0) return true;
  const std::size_t size = DTypeBytes(plane.dtype);
  if (rows.dim_stride == 1) {
    return ForEachRun(rows, [&](std::byte* to, std::size_t index, std::size_t count) {
      return FromFloatFinite(plane.dtype, values.subspan(index, count), {to, count * size});
    });
  }
  if (size == 1) return StoreApart<std::uint8_t>(values, rows);
  return size == 2 ? StoreApart<std::uint16_t>(values, rows)
                   : StoreApart<std::uint32_t>(values, rows);
}

void LoadFloats(const ConstPlaneView& plane, std::span<float> out) {
  (void)LoadRows(plane, 0, plane.tokens, out);
}

bool StoreFloats(std::span<const float> values, const PlaneView& plane) {
  return !HasNan(values) && StoreRows(values, plane, 0, plane.tokens);
}

bool AllBounded(std::span<const float> values) {
  return MagnitudesWithin(kLargestCoefficient, values);
}

std::optional<std::size_t> FindUnbounded(std::span<const float> values) {
  return FindAbove(kLargestCoefficient, values);
}

std::optional<std::size_t> FindNonFinite(std::span<const float> values) {
  return FindAbove(FLT_MAX, values);
}

}  // namespace kvserve
