// One side is nearly always contiguous, a buffer of ours; otherwise token by token through one.
#include <vector>

#include "base/plane_bytes.h"
#include "base/try.h"
#include "kvserve/view.h"

namespace kvserve {
namespace {

Status Differ(const std::string& what) {
  return MakeError(ErrorCode::kInvalidArgument, "the two views differ in " + what);
}

Status CheckPair(const ConstKvView& from, const ConstKvView& to) {
  KVSERVE_TRY(CheckView(from));
  KVSERVE_TRY(CheckView(to));
  if (from.device != Device::kHost || to.device != Device::kHost) {
    return MakeError(ErrorCode::kUnsupported, "only host memory can be copied");
  }
  if (!(*from.geometry == *to.geometry)) return Differ("geometry");
  if (!(from.tokens == to.tokens)) return Differ("their range of tokens");
  if (from.layers.size() != to.layers.size()) return Differ("their layers");
  for (std::size_t i = 0; i < from.layers.size(); ++i) {
    const auto& a = from.layers[i];
    const auto& b = to.layers[i];
    if (a.layer != b.layer) return Differ("their layers");
    if (!(a.tokens == b.tokens)) return Differ("the tokens of layer " + std::to_string(a.layer));
  }
  return {};
}

template <typename Byte>
BasicPlaneView<Byte> TokenOf(BasicPlaneView<Byte> plane, std::uint32_t token) {
  plane.data = plane.at(token, 0, 0);
  plane.tokens = 1;
  return plane;
}

void CopyPlane(const ConstPlaneView& from, const PlaneView& to, std::vector<std::byte>& row) {
  const std::size_t bytes = from.values() * DTypeBytes(from.dtype);
  if (bytes == 0) return;
  if (from.contiguous()) return ScatterBytes({from.data, bytes}, to);
  if (to.contiguous()) return GatherBytes(from, {to.data, bytes});
  row.resize(bytes / from.tokens);
  for (std::uint32_t token = 0; token < from.tokens; ++token) {
    GatherBytes(TokenOf(from, token), row);
    ScatterBytes(row, TokenOf(to, token));
  }
}

}  // namespace

ConstKvView ReadOnly(const KvView& view) {
  const auto plane = [](const PlaneView& p) {
    return ConstPlaneView{p.data, p.dtype,        p.device,      p.tokens,    p.heads,
                          p.dim,  p.token_stride, p.head_stride, p.dim_stride};
  };
  ConstKvView result{view.geometry, view.tokens, {}, view.device, view.stream};
  result.layers.reserve(view.layers.size());
  for (const LayerView& layer : view.layers) {
    result.layers.push_back({layer.layer, layer.tokens, plane(layer.k), plane(layer.v)});
  }
  return result;
}

Status CopyKv(const ConstKvView& from, const KvView& to) {
  KVSERVE_TRY(CheckPair(from, ReadOnly(to)));
  std::vector<std::byte> row;
  for (std::size_t i = 0; i < from.layers.size(); ++i) {
    CopyPlane(from.layers[i].k, to.layers[i].k, row);
    CopyPlane(from.layers[i].v, to.layers[i].v, row);
  }
  return {};
}

}  // namespace kvserve
