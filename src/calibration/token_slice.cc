#include "calibration/token_slice.h"

#include <algorithm>

namespace kvserve {
namespace {

ConstPlaneView SliceRows(const ConstPlaneView& plane, std::uint32_t first, std::uint32_t count) {
  ConstPlaneView slice = plane;
  if (plane.data != nullptr && count > 0) slice.data = plane.at(first, 0, 0);
  slice.tokens = count;
  return slice;
}

}  // namespace

ConstKvView SliceTokens(const ConstKvView& chunk, TokenRange tokens) {
  ConstKvView slice = chunk;
  slice.tokens = tokens;
  for (ConstLayerView& layer : slice.layers) {
    const TokenRange held = layer.tokens;
    layer.tokens.begin = std::clamp(held.begin, tokens.begin, tokens.end);
    layer.tokens.end = std::clamp(held.end, layer.tokens.begin, tokens.end);
    const std::uint32_t first = layer.tokens.empty() ? 0 : layer.tokens.begin - held.begin;
    layer.k = SliceRows(layer.k, first, layer.tokens.size());
    layer.v = SliceRows(layer.v, first, layer.tokens.size());
  }
  return slice;
}

}  // namespace kvserve
