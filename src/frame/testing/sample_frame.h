// Headers and frames for tests: shapes of real models, small sections with recognisable bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "frame/frame.h"

namespace kvserve::testing {

inline std::vector<std::byte> Pattern(std::size_t size, std::uint8_t start) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(start + 3 * i);
  return bytes;
}

inline Fingerprint Print(std::uint8_t start) {
  Fingerprint fingerprint;
  for (auto& byte : fingerprint.bytes) byte = start++;
  return fingerprint;
}

// The three stages of a usual lossy chain; the second has as many parameters as any.
inline std::vector<StageSpec> SampleStages() {
  return {{.id = 0x0201, .version = 1, .parameters = {{1, 0x5eed}}},
          {.id = 0x0301,
           .version = 1,
           .parameters = {{1, 16}, {2, 8}, {3, 0}, {4, 1}, {5, 64}, {6, 0.0}, {7, 1}, {8, -3}}},
          {.id = 0x0402, .version = 2, .parameters = {}}};
}

// SmolLM2-135M: 30 equal layers, 3 heads of 64.
inline FrameHeader SmolHeader() {
  FrameHeader header;
  header.dtype = DType::kBFloat16;
  header.model_layers = 30;
  header.tokens = {256, 512};
  header.prompt_tokens = 1000;
  header.model = Print(1);
  header.key = Print(101);
  header.stages = SampleStages();
  const LayerGeometry layer{.kv_heads = 3,
                            .k_dim = 64,
                            .v_dim = 64,
                            .rope_style = RopeStyle::kInterleaved,
                            .rope_theta = 100000.0F};
  for (std::uint32_t i = 0; i < 30; ++i) header.layers.push_back({i, layer, header.tokens});
  return header;
}

// 60 layers, five window layers (16 heads of 256) to one global layer (4 heads of 512).
inline FrameHeader WindowedHeader() {
  FrameHeader header = SmolHeader();
  header.model_layers = 60;
  header.layers.clear();
  for (std::uint32_t i = 0; i < 60; ++i) {
    FrameLayer layer{.layer = i, .tokens = header.tokens};
    layer.geometry.rope_style = RopeStyle::kHalves;
    if (i % 6 == 5) {
      layer.geometry.kv_heads = 4;
      layer.geometry.k_dim = layer.geometry.v_dim = 512;
      layer.geometry.rope_theta = 1e6F;
    } else {
      layer.geometry.kv_heads = 16;
      layer.geometry.k_dim = layer.geometry.v_dim = 256;
      layer.geometry.window_tokens = 600;
      layer.geometry.rope_theta = 1e4F;
      layer.tokens = {400, 512};
    }
    header.layers.push_back(layer);
  }
  return header;
}

struct SampleFrame {
  FrameHeader header;
  std::vector<std::byte> side;
  std::vector<std::byte> symbols;

  [[nodiscard]] std::vector<Section> sections() const {
    return {{SectionKind::kSide, side}, {SectionKind::kSymbols, symbols}};
  }
};

inline SampleFrame Sample() {
  return {SmolHeader(), Pattern(24, 7), Pattern(40, 99)};
}

}  // namespace kvserve::testing
