// KV of the shape of a model that cannot be shipped.
#pragma once

#include <cstdint>

#include "kvserve/error.h"
#include "kvserve/view.h"

namespace kvserve {

inline constexpr const char* kSyntheticName = "llama-3.1-8b-shape";

// Llama-3.1-8B: 32 layers, 8 KV heads of 128, bfloat16, rope_theta 500000, channels paired
// (i, i + 64).
[[nodiscard]] KvGeometry LlamaGeometry();

// Values that resemble KV, the same for the same arguments. What is modelled:
// - every channel has a scale of its own (log-normal, sigma 0.5 for K, 0.3 for V); layers grow
//   louder with depth, by 3 in all;
// - K channels have means beside their spread, and 1 in 32 is an outlier of 8 times the others'
//   scale whose mean is 3 times its spread; V has no means;
// - K is rotated by RoPE, so means and outliers turn with the position, the low frequencies slowly;
// - neighbouring tokens are alike (AR(1), 0.6 for K, 0.3 for V), and tokens differ in loudness
//   (log-normal, sigma 0.15 for K, 0.35 for V);
// - token 0 is a sink: K 2 times as loud, V a tenth.
// Innovations are sums of four uniform numbers: close to normal, cut off at 3.5 sigma.
[[nodiscard]] Status MakeSyntheticKv(const KvGeometry& geometry, std::uint32_t tokens,
                                     KvBuffer& out);

}  // namespace kvserve
