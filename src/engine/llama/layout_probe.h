// Learns a model's cache layout from the running model.
#pragma once

#include <llama.h>

#include "engine/llama/cache_layout.h"
#include "kvserve/error.h"

namespace kvserve {

// Evaluates a few tokens in a small context of its own with this cache type and compares the keys
// that the graph computed with the rows of the saved state. A state neither says which layer a row
// belongs to, nor the window, nor how keys are rotated; metadata does, for architectures one knows,
// so nothing here is taken from it unchecked. A rotation that one theta over the whole head does
// not describe (scaled frequencies, part of the dimensions) becomes RopeStyle::kNone: no stage may
// undo it. kUnsupported: rows that match no layer's keys, quantized rows, windows of another kind.
[[nodiscard]] Result<CacheLayout> ProbeCacheLayout(llama_model* model, DType cache_dtype);

// The engine's parameters of a context, shared by probe and engine so that both get the same
// layout. Flash attention: without it values are transposed. Unified: sequences can share cells,
// which moving chunks between sequences needs. Full window cache: cells keep their order, so that a
// sum over a long prompt has the same order in a process that computed it and in one that loaded
// it.
[[nodiscard]] llama_context_params ContextParams(DType cache_dtype);

}  // namespace kvserve
