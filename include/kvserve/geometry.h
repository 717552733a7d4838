// Shapes of a model's KV cache: what each layer holds, per layer, before any compression.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

// Element type of the engine's cache. Values are on the wire: never renumber. The fp8 forms differ
// in bias and special values (0x40 is 2.0 in E4M3FN and 1.0 in E4M3FNUZ), so each has its own id,
// and no bytes of one are ever taken for the other. kUint8 is opaque bytes, such as a cache of
// packed values and scales: they are moved bit for bit, and stages that compute with values refuse
// them.
enum class DType : std::uint8_t {
  kFloat16 = 1,
  kBFloat16 = 2,
  kFloat32 = 3,
  kFloat8E4M3FN = 4,
  kFloat8E4M3FNUZ = 5,
  kFloat8E5M2 = 6,
  kFloat8E5M2FNUZ = 7,
  kUint8 = 8,
};

[[nodiscard]] std::size_t DTypeBytes(DType dtype);      // 0 for an unknown value
[[nodiscard]] std::string_view DTypeName(DType dtype);  // "float16", ...; "unknown" otherwise
[[nodiscard]] Result<DType> ParseDType(std::string_view name);
[[nodiscard]] Status CheckDTypeSupported(DType dtype);  // kUnsupported for unknown values
[[nodiscard]] bool DTypeHoldsNumbers(DType dtype);      // known and not opaque bytes

// How the engine pairs channels when it rotates keys. Values are on the wire.
enum class RopeStyle : std::uint8_t {
  kNone = 0,         // keys are not rotated
  kInterleaved = 1,  // pairs (2i, 2i+1), llama.cpp "norm"
  kHalves = 2,       // pairs (i, i + dim/2), llama.cpp "neox"
};

// One layer of the cache. K and V are [token, head, dim]; a single-plane layer (MLA) has v_dim 0
// and keeps its latent in the K plane.
struct LayerGeometry {
  std::uint32_t kv_heads = 0;       // 1..kMaxHeads
  std::uint32_t k_dim = 0;          // 1..kMaxDim, values per head
  std::uint32_t v_dim = 0;          // 0 (single plane) or 1..kMaxDim
  std::uint32_t window_tokens = 0;  // 0: all tokens; else only the last window_tokens are held
  RopeStyle rope_style = RopeStyle::kNone;
  float rope_theta = 0.0F;  // 0 when rope_style is kNone

  [[nodiscard]] bool single_plane() const { return v_dim == 0; }
  friend bool operator==(const LayerGeometry&, const LayerGeometry&) = default;
};

inline constexpr std::uint32_t kMaxLayers = 4096;
inline constexpr std::uint32_t kMaxHeads = 4096;
inline constexpr std::uint32_t kMaxDim = 65536;
inline constexpr std::uint32_t kMaxTokens = 1U << 24;

struct KvGeometry {
  DType dtype = DType::kFloat16;
  std::vector<LayerGeometry> layers;  // [layer], 1..kMaxLayers

  friend bool operator==(const KvGeometry&, const KvGeometry&) = default;
};

// Half-open range of token indices of a request; token i of the prompt is at RoPE position i.
struct TokenRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  [[nodiscard]] std::uint32_t size() const { return end - begin; }
  [[nodiscard]] bool empty() const { return end == begin; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// 128-bit identity of a model, a prompt prefix or an artefact (XXH3-128). All zero: not known.
struct Fingerprint {
  std::array<std::uint8_t, 16> bytes{};

  [[nodiscard]] bool empty() const;
  [[nodiscard]] std::string hex() const;
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

enum class PlaneKind : std::uint8_t { kKey = 0, kValue = 1 };

// Checks every field against its range; the message names the first wrong field and layer
// ("layer 3: k_dim 0 is outside 1..65536").
[[nodiscard]] Status CheckGeometry(const KvGeometry& geometry);
// The same for layer `index` alone.
[[nodiscard]] Status CheckLayerGeometry(const LayerGeometry& layer, std::size_t index);

// The part of `tokens` (begin <= end) that `layer` holds when the request ends at token
// `total_tokens`: all of it unless the layer has a window. An empty part has begin == end ==
// tokens.end.
[[nodiscard]] TokenRange TokensHeld(const LayerGeometry& layer, TokenRange tokens,
                                    std::uint32_t total_tokens);

// Raw bytes of `tokens` tokens in one layer (K and V planes), in the cache dtype.
[[nodiscard]] std::uint64_t LayerBytes(const LayerGeometry& layer, DType dtype,
                                       std::uint64_t tokens);

}  // namespace kvserve
