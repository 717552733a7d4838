// A small chunk of KV for the fuzz targets that encode.
//
// Read from: u8 (modulo 3: dtype; bit 2: V planes, bit 3: the request's first tokens, bit 4: a
// second layer with a window), u8 heads - 1 modulo 4, u8 K dim - 1, u8 V dim - 1 modulo 160 (with
// bit 2), u8 tokens modulo 40; the rest fills the elements, over and over.
#pragma once

#include "chosen_stage.h"
#include "kvserve/view.h"

namespace kvserve::fuzzing {

[[nodiscard]] Status FillChunk(Choices& choices, KvBuffer& chunk);

}  // namespace kvserve::fuzzing
