#include "base/plane_bytes.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace kvserve {
namespace {

// Calls run(first byte, bytes) for pieces that lie together in memory, in [token, head, dim] order,
// of a plane whose dim_stride is 1.
template <typename Byte, typename Run>
void ForEachRun(const BasicPlaneView<Byte>& plane, Run run) {
  const std::size_t size = DTypeBytes(plane.dtype);
  if (plane.contiguous()) return run(plane.data, plane.values() * size);
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      run(plane.at(token, head, 0), plane.dim * size);
    }
  }
}

// Calls copy(strided byte, byte offset in [token, head, dim] order, size) for every element. Blocks
// of a head that stay in L1 on both sides, each along the shorter stride of the plane.
template <typename Byte, typename Copy>
void ForEachElement(const BasicPlaneView<Byte>& plane, const Copy& copy) {
  constexpr std::uint32_t kTokens = 32;
  constexpr std::uint32_t kDims = 64;
  const std::size_t size = DTypeBytes(plane.dtype);
  const std::size_t row_bytes = std::size_t{plane.heads} * plane.dim * size;
  const auto along_tokens = plane.token_stride * static_cast<std::int64_t>(size);
  const auto along_dims = plane.dim_stride * static_cast<std::int64_t>(size);
  const bool tokens_inside = std::abs(along_tokens) < std::abs(along_dims);
  const auto copy_block = [&](Byte* at, std::size_t offset, std::uint32_t tokens,
                              std::uint32_t dims) {
    const std::uint32_t outer = tokens_inside ? dims : tokens;
    const std::uint32_t inner = tokens_inside ? tokens : dims;
    for (std::uint32_t i = 0; i < outer; ++i) {
      Byte* from = at + i * (tokens_inside ? along_dims : along_tokens);
      std::size_t to = offset + i * (tokens_inside ? size : row_bytes);
      for (std::uint32_t k = 0; k < inner; ++k) {
        copy(from, to);
        from += tokens_inside ? along_tokens : along_dims;
        to += tokens_inside ? row_bytes : size;
      }
    }
  };
  for (std::uint32_t head = 0; head < plane.heads; ++head) {
    for (std::uint32_t token = 0; token < plane.tokens; token += kTokens) {
      for (std::uint32_t d = 0; d < plane.dim; d += kDims) {
        copy_block(plane.at(token, head, d),
                   token * row_bytes + (std::size_t{head} * plane.dim + d) * size,
                   std::min(kTokens, plane.tokens - token), std::min(kDims, plane.dim - d));
      }
    }
  }
}

template <typename Element>
void GatherApart(const ConstPlaneView& plane, std::byte* out) {
  ForEachElement(plane, [out](const std::byte* from, std::size_t to) {
    std::memcpy(out + to, from, sizeof(Element));
  });
}

template <typename Element>
void ScatterApart(const std::byte* in, const PlaneView& plane) {
  ForEachElement(plane, [in](std::byte* to, std::size_t from) {
    std::memcpy(to, in + from, sizeof(Element));
  });
}

}  // namespace

void GatherBytes(const ConstPlaneView& plane, std::span<std::byte> out) {
  if (plane.values() == 0) return;
  if (plane.dim_stride == 1) {
    std::byte* to = out.data();
    return ForEachRun(plane, [&](const std::byte* from, std::size_t bytes) {
      std::memcpy(to, from, bytes);
      to += bytes;
    });
  }
  switch (DTypeBytes(plane.dtype)) {
    case 1: return GatherApart<std::uint8_t>(plane, out.data());
    case 2: return GatherApart<std::uint16_t>(plane, out.data());
    default: return GatherApart<std::uint32_t>(plane, out.data());
  }
}

void ScatterBytes(std::span<const std::byte> in, const PlaneView& plane) {
  if (plane.values() == 0) return;
  if (plane.dim_stride == 1) {
    const std::byte* from = in.data();
    return ForEachRun(plane, [&](std::byte* to, std::size_t bytes) {
      std::memcpy(to, from, bytes);
      from += bytes;
    });
  }
  switch (DTypeBytes(plane.dtype)) {
    case 1: return ScatterApart<std::uint8_t>(in.data(), plane);
    case 2: return ScatterApart<std::uint16_t>(in.data(), plane);
    default: return ScatterApart<std::uint32_t>(in.data(), plane);
  }
}

}  // namespace kvserve
