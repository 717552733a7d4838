#include <cmath>
#include <string>

#include "base/checked.h"
#include "base/try.h"
#include "frame/layout.h"

namespace kvserve {
namespace {

Status Invalid(std::string message) {
  return MakeError(ErrorCode::kInvalidArgument, std::move(message));
}

std::string RangeText(TokenRange range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

Status CheckTokens(const FrameHeader& header) {
  if (header.tokens.end < header.tokens.begin || header.tokens.end > kMaxTokens) {
    return Invalid("tokens " + RangeText(header.tokens) + " are not within 0.." +
                   std::to_string(kMaxTokens));
  }
  if (header.prompt_tokens > kMaxTokens ||
      (header.prompt_tokens != 0 && header.prompt_tokens < header.tokens.end)) {
    return Invalid("prompt_tokens " + std::to_string(header.prompt_tokens) +
                   " is neither 0 nor within " + std::to_string(header.tokens.end) + ".." +
                   std::to_string(kMaxTokens));
  }
  return {};
}

Status CheckLayerOrder(const FrameHeader& header) {
  if (header.model_layers < 1 || header.model_layers > kMaxLayers) {
    return Invalid("model_layers " + std::to_string(header.model_layers) + " is outside 1.." +
                   std::to_string(kMaxLayers));
  }
  if (header.layers.empty()) return Invalid("layers 0: a frame holds at least one layer");
  std::uint32_t next = 0;
  for (const auto& layer : header.layers) {
    if (layer.layer < next || layer.layer >= header.model_layers) {
      return Invalid("layer " + std::to_string(layer.layer) +
                     " is out of order or not among the model's " +
                     std::to_string(header.model_layers));
    }
    next = layer.layer + 1;
    if (layer.tokens.begin < header.tokens.begin || layer.tokens.end > header.tokens.end ||
        layer.tokens.end < layer.tokens.begin) {
      return Invalid("layer " + std::to_string(layer.layer) + ": tokens " +
                     RangeText(layer.tokens) + " are not within the frame's " +
                     RangeText(header.tokens));
    }
  }
  return {};
}

Status CheckShapes(const FrameHeader& header) {
  std::uint64_t raw_bytes = 0;
  for (const auto& layer : header.layers) {
    KVSERVE_TRY(CheckLayerGeometry(layer.geometry, layer.layer));
    // One layer is at most 2^24 tokens * 2^12 heads * 2^17 values * 4 bytes: no overflow.
    const std::uint64_t bytes = LayerBytes(layer.geometry, header.dtype, layer.tokens.size());
    const auto sum = CheckedAdd(raw_bytes, bytes);
    if (!sum || *sum > kMaxFrameRawBytes) {
      return Invalid("layer " + std::to_string(layer.layer) + ": raw bytes of the frame pass " +
                     std::to_string(kMaxFrameRawBytes));
    }
    raw_bytes = *sum;
  }
  return {};
}

std::string StageName(const StageSpec& stage) {
  return "stage " + std::to_string(stage.id) + ": ";
}

Status CheckStage(const StageSpec& stage) {
  if (stage.id == 0) return Invalid(StageName(stage) + "id 0 is not a stage");
  if (stage.parameters.size() > 255) {
    return Invalid(StageName(stage) + std::to_string(stage.parameters.size()) +
                   " parameters are over 255");
  }
  int previous = -1;
  for (const auto& parameter : stage.parameters) {
    if (parameter.id <= previous) {
      return Invalid(StageName(stage) + "parameter id " + std::to_string(parameter.id) +
                     " follows " + std::to_string(previous) + "; ids must ascend");
    }
    previous = parameter.id;
    if (!std::isfinite(parameter.value) || std::abs(parameter.value) > kMaxParameter) {
      return Invalid(StageName(stage) + "parameter " + std::to_string(parameter.id) + " value " +
                     std::to_string(parameter.value) + " is not finite or beyond 2^53");
    }
  }
  return {};
}

}  // namespace

KvGeometry ModelGeometry(const FrameHeader& header) {
  KvGeometry geometry;
  ModelGeometry(header, geometry);
  return geometry;
}

void ModelGeometry(const FrameHeader& header, KvGeometry& geometry) {
  geometry.dtype = header.dtype;
  geometry.layers.assign(header.model_layers, LayerGeometry{.kv_heads = 1, .k_dim = 1});
  for (const auto& layer : header.layers) geometry.layers[layer.layer] = layer.geometry;
}

std::uint64_t RawBytes(const FrameHeader& header) {
  std::uint64_t bytes = 0;
  for (const auto& layer : header.layers) {
    bytes += LayerBytes(layer.geometry, header.dtype, layer.tokens.size());
  }
  return bytes;
}

Status CheckHeader(const FrameHeader& header) {
  KVSERVE_TRY(CheckDTypeSupported(header.dtype));
  KVSERVE_TRY(CheckTokens(header));
  KVSERVE_TRY(CheckLayerOrder(header));
  KVSERVE_TRY(CheckShapes(header));
  if (header.stages.size() > kMaxStages) {
    return Invalid("stages " + std::to_string(header.stages.size()) + " is outside 0.." +
                   std::to_string(kMaxStages));
  }
  for (const auto& stage : header.stages) KVSERVE_TRY(CheckStage(stage));
  return {};
}

}  // namespace kvserve
