// The embedded engine: llama.cpp through libllama, any GGUF by path.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"

namespace kvserve {

struct LlamaOptions {
  std::string model_path;
  std::uint32_t context_tokens = 2048;  // per sequence
  std::uint32_t sequences = 4;          // at the same time
  std::uint32_t chunk_tokens = 256;     // largest Prefill call (n_batch = n_ubatch)
  int threads = 1;                      // single-token decode
  int batch_threads = 2;                // prefill
  std::optional<DType> cache_dtype;     // default: F16, faster than BF16 (open_engine.cc)
  bool tap_queries = false;             // TapQueries works
  // context_tokens above those that the model was trained on are these, instead of an error.
  bool at_most_trained_context = false;
};

// Loads the model, probes its cache layout with a few tokens and refuses what it does not
// understand (recurrent state, transposed values, unknown row types) with kUnsupported. kBadInput:
// no such file or not a GGUF. Call PrepareProcessForEngines (process.h) first. Memory: one cache of
// context_tokens per sequence.
// Prefill, Decode, Score and Inject only continue a sequence where it ends; evaluation refuses
// (kBadInput) when injected window layers do not reach back far enough. A layer whose rotation is
// not one theta over the whole head is reported as RopeStyle::kNone.
[[nodiscard]] Result<std::unique_ptr<Engine>> OpenLlamaEngine(const LlamaOptions& options);

// Writes the model with its weights dequantized to F16 (path.tmp, then renamed). Takes seconds;
// 4-bit weights amplify a one-bit change of the KV to KL 0.003, which would hide what we measure.
[[nodiscard]] Status DequantizeModel(const std::string& source, const std::string& target);

}  // namespace kvserve
