// Any profile text over any values: what encodes must decode, and lossless chains give the bits
// back.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "decode_contract.h"
#include "kvserve/codec.h"
#include "stages/registry.h"

namespace kvserve::fuzzing {
namespace {

using Bytes = std::span<const std::uint8_t>;

std::uint8_t TakeByte(Bytes& input) {
  if (input.empty()) return 0;
  const std::uint8_t byte = input.front();
  input = input.subspan(1);
  return byte;
}

bool Lossless(const Profile& profile) {
  return std::ranges::all_of(profile.stages, [](const StageSpec& stage) {
    const auto table = BuiltinStages();
    const auto entry = std::ranges::find_if(
        table, [&](const StageEntry& candidate) { return candidate.info->id == stage.id; });
    return entry != table.end() && entry->info->lossless;
  });
}

// One or two layers, the second with a window; three bits choose the dtype, the planes and whether
// the chunk starts the request. Values repeat what is left of the input.
Status FillChunk(Bytes& input, KvBuffer& chunk) {
  constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32};
  const std::uint8_t choice = TakeByte(input);
  LayerGeometry layer{.kv_heads = 1U + TakeByte(input) % 4, .k_dim = 1U + TakeByte(input)};
  if ((choice & 4) != 0) layer.v_dim = 1U + TakeByte(input) % 160;
  const std::uint32_t first = (choice & 8) != 0 ? 0 : 77;
  const TokenRange tokens{first, first + TakeByte(input) % 40};
  KvGeometry geometry{kDTypes[choice % 3], {layer}};
  if ((choice & 16) != 0) {
    layer.window_tokens = 5;
    geometry.layers.push_back(layer);
  }
  return chunk.Resize(geometry, tokens, tokens.end + 2);
}

void FillPlane(const PlaneView& plane, Bytes values) {
  if (plane.data == nullptr) return;
  std::size_t at = 0;
  const std::size_t bytes = plane.values() * DTypeBytes(plane.dtype);
  for (std::size_t i = 0; i < bytes; ++i) {
    plane.data[i] = std::byte{values.empty() ? std::uint8_t{0} : values[at++ % values.size()]};
  }
}

void CheckRoundTrip(const KvBuffer& chunk, const Profile& profile) {
  std::vector<std::byte> frame;
  if (!EncodeFrame(chunk.view(), profile, {}, frame)) return;
  KvBuffer decoded;
  const auto size = DecodeFrame(frame, Limits(), decoded);
  if (!size) Fail("encoded, but: " + size.error().message);
  if (*size != frame.size()) Fail("decoded another length");
  if (Lossless(profile)) CheckSame(chunk.view(), std::as_const(decoded).view(), "lossless");
  const ScalarKernels pinned;
  std::vector<std::byte> scalar;
  if (!EncodeFrame(chunk.view(), profile, {}, scalar) || scalar != frame) {
    Fail("scalar kernels encode another frame");
  }
}

}  // namespace
}  // namespace kvserve::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvserve;
  fuzzing::Bytes input(data, size);
  const std::size_t text_size = std::min<std::size_t>(fuzzing::TakeByte(input), input.size());
  const std::string_view text(reinterpret_cast<const char*>(input.data()), text_size);
  input = input.subspan(text_size);
  const auto profile = ParseProfile(text);
  if (!profile) return 0;
  KvBuffer chunk;
  if (!fuzzing::FillChunk(input, chunk)) return 0;
  for (const auto& layer : chunk.view().layers) {
    fuzzing::FillPlane(layer.k, input);
    fuzzing::FillPlane(layer.v, input);
  }
  fuzzing::CheckRoundTrip(chunk, *profile);
  return 0;
}
