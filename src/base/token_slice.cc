#include "base/token_slice.h"

#include <algorithm>

namespace kvserve {
namespace {

ConstPlaneView SlicePlane(ConstPlaneView plane, std::uint32_t first, std::uint32_t count) {
  if (plane.data != nullptr && count != 0) plane.data = plane.at(first, 0, 0);
  plane.tokens = count;
  return plane;
}

}  // namespace

ConstKvView SliceTokens(const ConstKvView& view, TokenRange tokens) {
  ConstKvView slice = view;
  slice.tokens = tokens;
  for (ConstLayerView& layer : slice.layers) {
    TokenRange held{std::max(layer.tokens.begin, tokens.begin),
                    std::min(layer.tokens.end, tokens.end)};
    if (held.begin >= held.end) held = {tokens.end, tokens.end};
    const std::uint32_t first = held.empty() ? 0 : held.begin - layer.tokens.begin;
    layer.k = SlicePlane(layer.k, first, held.size());
    layer.v = SlicePlane(layer.v, first, held.size());
    layer.tokens = held;
  }
  return slice;
}

}  // namespace kvserve
