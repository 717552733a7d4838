#include "base/plane_bytes.h"

#include <cstring>

namespace kvserve {
namespace {

// Calls run(first byte, bytes) for pieces that lie together in memory, in [token, head, dim] order.
template <typename Byte, typename Run>
void ForEachRun(const BasicPlaneView<Byte>& plane, Run run) {
  const std::size_t size = DTypeBytes(plane.dtype);
  if (plane.values() == 0) return;
  if (plane.contiguous()) return run(plane.data, plane.values() * size);
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      if (plane.dim_stride == 1) {
        run(plane.at(token, head, 0), plane.dim * size);
        continue;
      }
      for (std::uint32_t d = 0; d < plane.dim; ++d) run(plane.at(token, head, d), size);
    }
  }
}

}  // namespace

void GatherBytes(const ConstPlaneView& plane, std::span<std::byte> out) {
  std::byte* to = out.data();
  ForEachRun(plane, [&](const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  });
}

void ScatterBytes(std::span<const std::byte> in, const PlaneView& plane) {
  const std::byte* from = in.data();
  ForEachRun(plane, [&](std::byte* to, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    from += bytes;
  });
}

}  // namespace kvserve
