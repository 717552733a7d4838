#include <cstring>

#include "kernels/strided_copy/strided_copy.h"

namespace kvserve {
namespace {

template <std::size_t kBytes>
void CopyElements(const ConstPlaneView& from, const PlaneView& to) {
  for (std::uint32_t token = 0; token < from.tokens; ++token) {
    for (std::uint32_t head = 0; head < from.heads; ++head) {
      for (std::uint32_t d = 0; d < from.dim; ++d) {
        std::memcpy(to.at(token, head, d), from.at(token, head, d), kBytes);
      }
    }
  }
}

}  // namespace

void CopyPlaneRef(const ConstPlaneView& from, const PlaneView& to) {
  switch (DTypeBytes(from.dtype)) {
    case 1: return CopyElements<1>(from, to);
    case 2: return CopyElements<2>(from, to);
    default: return CopyElements<4>(from, to);
  }
}

}  // namespace kvserve
