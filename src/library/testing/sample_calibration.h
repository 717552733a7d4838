// A small artefact with every section but the code tables, for tests and fuzz seeds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "library/calibration_artefact.h"
#include "library/testing/sample_sections.h"
#include "library/testing/sample_transform.h"

namespace kvserve::testing {

// Layers of two shapes and one single plane; nothing for the K of layer 1, no queries of layer 2
// and no head scores of layer 0.
inline CalibrationArtefact::Contents SampleCalibration() {
  CalibrationArtefact::Contents contents;
  contents.geometry.dtype = DType::kBFloat16;
  contents.geometry.layers.assign(4, {.kv_heads = 2,
                                      .k_dim = 4,
                                      .v_dim = 2,
                                      .rope_style = RopeStyle::kHalves,
                                      .rope_theta = 1e4F});
  contents.geometry.layers[2].window_tokens = 64;
  contents.geometry.layers[3] = {.kv_heads = 1, .k_dim = 6};
  for (std::size_t i = 0; i < 16; ++i) contents.model.bytes[i] = static_cast<std::uint8_t>(i + 1);
  contents.tokens = 12345;
  contents.source = "texts.jsonl: 8 texts";
  contents.statistics.resize(8);
  for (std::size_t p = 0; p < 8; ++p) {
    const LayerGeometry& layer = contents.geometry.layers[p / 2];
    const std::size_t channels = layer.kv_heads * (p % 2 == 0 ? layer.k_dim : layer.v_dim);
    if (p == 2) continue;
    for (std::size_t c = 0; c < channels; ++c) {
      contents.statistics[p].mean.push_back(static_cast<float>(c) * 100.25F - 3);
      contents.statistics[p].scale.push_back(0.125F + static_cast<float>(p + c));
    }
  }
  contents.klt_heads.resize(8);
  contents.klt_joint.resize(8);
  for (std::size_t p = 0; p < 7; ++p) {  // the last is the V of a single plane
    const LayerGeometry& layer = contents.geometry.layers[p / 2];
    const std::size_t dim = p % 2 == 0 ? layer.k_dim : layer.v_dim;
    if (p == 2) continue;
    contents.klt_heads[p] = SampleKlt(layer.kv_heads * dim, dim);
    contents.klt_joint[p] = SampleKlt(layer.kv_heads * dim, layer.kv_heads * dim);
  }
  contents.query_statistics = {SampleQueries(4, 4), SampleQueries(2, 4), {}, SampleQueries(3, 6)};
  contents.head_scores = {
      {}, SampleHeadScores(1, 2), SampleHeadScores(2, 2), SampleHeadScores(3, 1)};
  contents.attention_profile = SampleAttention(contents.geometry);
  contents.frame_expectation = SampleExpectation(contents.geometry);
  contents.attention_profile.planes[2] = {};
  EntropyClasses four{.alphabet = 4, .frequencies = {}};
  four.frequencies.resize(2);
  four.frequencies[0] = {1024, 1024, 1024, 1024};
  four.frequencies[1] = {1, 2047, 2047, 1};
  EntropyClasses bytes{.alphabet = 256, .frequencies = {}};
  bytes.frequencies.emplace_back().fill(16);
  contents.entropy = {four, bytes};
  AddTransformSample(64, contents);
  contents.whitening[2] = {};
  contents.predictors[2] = {};
  contents.code_tables.reset();  // 32 kB
  return contents;
}

}  // namespace kvserve::testing
