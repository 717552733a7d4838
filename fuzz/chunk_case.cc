#include "chunk_case.h"

#include "base/try.h"

namespace kvserve::fuzzing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32};
constexpr DType kByteDTypes[] = {DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2,
                                 DType::kFloat8E5M2FNUZ};

DType DTypeFrom(std::uint8_t choice) {
  if ((choice & 32) == 0) return kDTypes[choice % 3];
  return choice % 3 == 2 ? DType::kUint8 : kByteDTypes[choice >> 6];
}

void FillPlane(const PlaneView& plane, std::span<const std::uint8_t> fill) {
  if (plane.data == nullptr) return;
  const std::size_t bytes = plane.values() * DTypeBytes(plane.dtype);
  for (std::size_t i = 0; i < bytes; ++i) {
    plane.data[i] = std::byte{fill.empty() ? std::uint8_t{0} : fill[i % fill.size()]};
  }
}

}  // namespace

Status FillChunk(Choices& choices, KvBuffer& chunk) {
  const std::uint8_t choice = choices.Byte();
  LayerGeometry layer{.kv_heads = 1U + choices.Byte() % 4, .k_dim = 1U + choices.Byte()};
  if ((choice & 4) != 0) layer.v_dim = 1U + choices.Byte() % 160;
  const std::uint32_t first = (choice & 8) != 0 ? 0 : 77;
  const TokenRange tokens{first, first + choices.Byte() % 40};
  KvGeometry geometry{DTypeFrom(choice), {layer}};
  if ((choice & 16) != 0) {
    layer.window_tokens = 5;
    geometry.layers.push_back(layer);
  }
  KVSERVE_TRY(chunk.Resize(geometry, tokens, tokens.end + 2));
  for (const auto& planes : chunk.view().layers) {
    FillPlane(planes.k, choices.rest());
    FillPlane(planes.v, choices.rest());
  }
  return {};
}

}  // namespace kvserve::fuzzing
