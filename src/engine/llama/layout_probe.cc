#include "engine/llama/layout_probe.h"

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "base/half.h"
#include "base/try.h"
#include "engine/llama/handles.h"
#include "engine/llama/key_tap.h"
#include "engine/llama/process.h"
#include "engine/llama/rope_fit.h"
#include "engine/llama/window_probe.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kProbeTokens = 8;
constexpr double kSameRow = 0.01;  // relative; rounding to bf16 stays below 0.003

tl::unexpected<Error> Unsupported(const std::string& what) {
  return MakeError(ErrorCode::kUnsupported, "cache layout: " + what);
}

ggml_type RowTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return GGML_TYPE_BF16;
    case DType::kFloat32: return GGML_TYPE_F32;
    default: return GGML_TYPE_F16;
  }
}

std::vector<float> ToFloats(const StateRows& rows) {
  std::vector<float> values(rows.rows.size() / DTypeBytes(rows.dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (rows.dtype == DType::kFloat32) {
      std::memcpy(&values[i], rows.rows.data() + i * 4, 4);
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, rows.rows.data() + i * 2, 2);
      values[i] = rows.dtype == DType::kBFloat16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
    }
  }
  return values;
}

bool SameRows(const std::vector<float>& rows, const std::vector<float>& keys) {
  if (rows.size() != keys.size() || rows.empty()) return false;
  double residual = 0;
  double norm = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    residual += std::pow(double{rows[i]} - keys[i], 2);
    norm += std::pow(double{keys[i]}, 2);
  }
  return norm > 0 && std::sqrt(residual / norm) < kSameRow;
}

// [cache][slot] -> model layer whose keys are in that slot's rows.
Result<std::vector<std::vector<std::uint32_t>>> MatchRows(const SequenceState& state,
                                                          const KeyTap& tap) {
  std::vector<std::vector<std::uint32_t>> model_layers;
  for (const StateCache& cache : state.caches) {
    if (cache.positions.size() != kProbeTokens) {
      return Unsupported(std::to_string(cache.positions.size()) + " cells for " +
                         std::to_string(kProbeTokens) + " tokens");
    }
    auto& slots = model_layers.emplace_back();
    for (const StateRows& rows : cache.keys) {
      const std::vector<float> values = ToFloats(rows);
      std::optional<std::uint32_t> match;
      for (const auto& [layer, keys] : tap.layers()) {
        if (!SameRows(values, keys.after)) continue;
        if (match)
          return Unsupported("a row matches layers " + std::to_string(*match) + " and " +
                             std::to_string(layer));
        match = layer;
      }
      if (!match) {
        return Unsupported("row " + std::to_string(slots.size()) + " of cache " +
                           std::to_string(model_layers.size() - 1) + " matches no layer's keys");
      }
      slots.push_back(*match);
    }
  }
  return model_layers;
}

Result<LayerGeometry> LayerOf(const TappedKeys& keys, const StateRows& key_rows,
                              const StateRows* value_rows, std::uint32_t window_tokens) {
  LayerGeometry layer;
  layer.kv_heads = keys.heads;
  layer.k_dim = keys.dim;
  layer.window_tokens = window_tokens;
  const std::uint64_t head_bytes = std::uint64_t{keys.heads} * DTypeBytes(key_rows.dtype);
  if (head_bytes == 0 || head_bytes * keys.dim != key_rows.row_bytes) {
    return Unsupported("key rows of " + std::to_string(key_rows.row_bytes) + " bytes are not " +
                       std::to_string(keys.heads) + " heads of " + std::to_string(keys.dim));
  }
  if (value_rows != nullptr) {
    if (value_rows->dtype != key_rows.dtype || value_rows->row_bytes % head_bytes != 0) {
      return Unsupported("value rows of " + std::to_string(value_rows->row_bytes) +
                         " bytes do not divide into " + std::to_string(keys.heads) + " heads");
    }
    layer.v_dim = static_cast<std::uint32_t>(value_rows->row_bytes / head_bytes);
  }
  if (keys.rotated && keys.whole_head) {
    const auto fit = FitRope(keys.before, keys.after, keys.heads, keys.dim, keys.theta);
    if (fit) {
      layer.rope_style = fit->style;
      layer.rope_theta = fit->theta;
    }
  }
  return layer;
}

Result<std::vector<std::byte>> EvaluateProbe(llama_model* model, llama_context* context) {
  const std::int32_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::vector<Token> tokens;
  for (std::uint32_t i = 0; i < kProbeTokens; ++i) {  // spread, so that layers do not look alike
    tokens.push_back(static_cast<Token>((std::int64_t{i} + 1) * vocabulary / (kProbeTokens + 1)));
  }
  const TokenBatch batch(0, tokens, 0, false);
  if (const int code = llama_decode(context, batch.get()); code != 0) {
    return Unsupported("evaluating " + std::to_string(kProbeTokens) + " tokens failed with code " +
                       std::to_string(code));
  }
  std::vector<std::byte> blob(llama_state_seq_get_size(context, 0));
  blob.resize(llama_state_seq_get_data(context, reinterpret_cast<std::uint8_t*>(blob.data()),
                                       blob.size(), 0));
  return blob;
}

Result<SequenceState> ParseEither(std::span<const std::byte> blob, bool& has_values) {
  has_values = true;
  auto state = ParseState(blob, true);
  if (state) return state;
  has_values = false;
  if (auto single = ParseState(blob, false)) return single;
  return state;
}

Result<CacheLayout> BuildLayout(const SequenceState& state, const KeyTap& tap, bool has_values,
                                const std::vector<std::uint32_t>& windows, DType dtype) {
  KVSERVE_ASSIGN(const auto model_layers, MatchRows(state, tap));
  std::map<std::uint32_t, LayerGeometry> layers;
  for (std::size_t cache = 0; cache < model_layers.size(); ++cache) {
    for (std::size_t slot = 0; slot < model_layers[cache].size(); ++slot) {
      const std::uint32_t model_layer = model_layers[cache][slot];
      const StateRows& keys = state.caches[cache].keys[slot];
      if (keys.dtype != dtype) return Unsupported("rows are not of the type that was asked for");
      const StateRows* values = has_values ? &state.caches[cache].values[slot] : nullptr;
      KVSERVE_ASSIGN(const LayerGeometry layer,
                     LayerOf(tap.layers().at(model_layer), keys, values, windows[cache]));
      if (!layers.emplace(model_layer, layer).second) {
        return Unsupported("layer " + std::to_string(model_layer) + " is cached twice");
      }
    }
  }
  CacheLayout layout;
  layout.has_values = has_values;
  layout.geometry.dtype = dtype;
  std::map<std::uint32_t, std::uint32_t> index;
  for (const auto& [model_layer, layer] : layers) {
    index[model_layer] = static_cast<std::uint32_t>(layout.geometry.layers.size());
    layout.geometry.layers.push_back(layer);
    layout.model_layers.push_back(model_layer);
  }
  for (const auto& slots : model_layers) {
    auto& mapped = layout.slots.emplace_back();
    for (const std::uint32_t model_layer : slots) mapped.push_back(index[model_layer]);
    if (mapped.empty()) return Unsupported("a cache without layers");
  }
  KVSERVE_TRY(CheckGeometry(layout.geometry));
  return layout;
}

}  // namespace

Result<CacheLayout> ProbeCacheLayout(llama_model* model, DType cache_dtype) {
  KeyTap tap;
  llama_context_params params = ContextParams(cache_dtype);
  params.n_ctx = 256;
  params.n_batch = params.n_ubatch = kProbeTokens;
  params.n_seq_max = 1;
  params.cb_eval = KeyTap::Callback;
  params.cb_eval_user_data = &tap;
  const LlamaContext context(llama_init_from_model(model, params));
  if (!context) return Unsupported("no context: " + LastEngineError());
  KVSERVE_ASSIGN(const auto blob, EvaluateProbe(model, context.get()));
  bool has_values = true;
  KVSERVE_ASSIGN(const auto state, ParseEither(blob, has_values));
  const std::int32_t window = llama_model_n_swa(model);
  std::vector<std::uint32_t> windows(state.caches.size(), 0);
  if (window > 0) {
    KVSERVE_ASSIGN(windows, ProbeWindows(context.get(), state, static_cast<std::uint32_t>(window)));
  }
  return BuildLayout(state, tap, has_values, windows, cache_dtype);
}

llama_context_params ContextParams(DType cache_dtype) {
  llama_context_params params = llama_context_default_params();
  params.type_k = params.type_v = RowTypeOf(cache_dtype);
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.kv_unified = true;
  params.swa_full = true;
  params.no_perf = true;
  params.n_threads = params.n_threads_batch = 1;
  return params;
}

}  // namespace kvserve
