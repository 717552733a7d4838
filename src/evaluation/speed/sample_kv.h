// Real KV that is part of the program: see data/kv/README.md.
#pragma once

#include <cstddef>
#include <span>

#include "kvserve/error.h"
#include "kvserve/view.h"

namespace kvserve {

inline constexpr const char* kSampleName = "smollm2-128";

// The file of frames data/kv/smollm2-128.kvs, which lies in the program itself.
[[nodiscard]] std::span<const std::byte> SampleFrames();

// SmolLM2-135M over the first 128 tokens of a text: 30 layers, 3 heads of 64, float16 as captured,
// or bfloat16 by rounding the same values. Other dtypes are refused as by ConvertDType.
[[nodiscard]] Status LoadSample(DType dtype, KvBuffer& out);

}  // namespace kvserve
