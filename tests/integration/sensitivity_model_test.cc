// The forward sensitivity of real models foretells what white noise in a plane, which it has never
// been measured with, does to another text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "base/split_mix.h"
#include "base/try.h"
#include "calibration/divergence_probe.h"
#include "calibration/forward_sensitivity.h"
#include "calibration/metric_noise.h"
#include "engine/llama/llama_engine.h"
#include "engine/llama/process.h"
#include "evaluation/record.h"
#include "kernels/rotate/rotate.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kContext = 384;
constexpr std::uint32_t kScored = 32;

std::unique_ptr<Engine> Open(const std::string& file) {
  LlamaOptions options;
  options.model_path = std::string(std::getenv("KVSERVE_TEST_MODELS")) + "/" + file;
  options.context_tokens = kContext + kScored;
  options.sequences = 1;
  options.cache_dtype = DType::kFloat32;
  options.tap_queries = true;
  PrepareProcessForEngines();
  auto engine = OpenLlamaEngine(options);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

std::vector<std::vector<Token>> Texts(const Engine& engine, std::size_t count) {
  std::vector<std::vector<Token>> texts;
  const auto records = ReadRecords(KVSERVE_PROMPTS_FILE);
  EXPECT_TRUE(records) << records.error().message;
  for (const Record& record : records.value_or(std::vector<Record>{})) {
    if (texts.size() == count) break;
    auto& tokens = texts.emplace_back(engine.Tokenize(record.text, true, false).value());
    EXPECT_GE(tokens.size(), kContext + kScored);
    tokens.resize(kContext + kScored);
  }
  return texts;
}

struct Effect {
  double foretold = 0;  // nats per scored token
  double measured = 0;
};

// Of noise of three tenths of the plane's size, in the tokens that count; the KV is as before
// afterwards.
Effect TryNoise(DivergenceProbe& probe, const LayerGeometry& layer, std::size_t index,
                PlaneKind kind, const std::vector<float>& matrix) {
  const KvView kv = probe.kv();
  const LayerView& held = kv.layers[index];
  const PlaneView& plane = kind == PlaneKind::kKey ? held.k : held.v;
  const std::size_t columns = std::size_t{plane.heads} * plane.dim;
  const std::uint32_t begin = held.tokens.begin < 4 ? 4 - held.tokens.begin : 0;
  const std::span<float> values(reinterpret_cast<float*>(plane.data) + begin * columns,
                                (held.tokens.size() - 32 - begin) * columns);
  const std::vector<float> before(values.begin(), values.end());
  double squares = 0;
  for (const float value : before) squares += double{value} * value;
  const double size = 0.3 * std::sqrt(squares / static_cast<double>(before.size()));
  SplitMix64 random(index);
  std::vector<float> error(before.size());
  MetricNoise(std::vector<float>(columns * columns), columns).Add(0, size, random, error);
  const double foretold = FormEnergy(matrix, columns, 0, error) / 2;
  if (kind == PlaneKind::kKey) {
    std::vector<std::uint64_t> turns(RopePairs(layer.k_dim));
    RopeTurns(layer.rope_theta, layer.k_dim, turns);
    ApplyRope(error,
              {layer.rope_style, layer.k_dim, layer.kv_heads, held.tokens.begin + begin, turns});
  }
  for (std::size_t i = 0; i < error.size(); ++i) values[i] += error[i];
  const double measured = probe.Divergence().value();
  std::ranges::copy(before, values.begin());
  return {foretold, measured};
}

TEST(SensitivityModel, ForetellsTheDivergenceOfWhiteNoise) {
  for (const std::string file : {"smollm2-f16.gguf", "gemma-3-270m-f16.gguf"}) {
    const auto engine = Open(file);
    ASSERT_NE(engine, nullptr);
    const auto& layers = engine->info().geometry.layers;
    const auto texts = Texts(*engine, 2);
    ForwardSensitivityOptions options;
    options.context_tokens = kContext;
    options.scored_tokens = kScored;
    options.texts = 1;
    const auto found = ForwardSensitivity(*engine, texts, options);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->planes.size(), 2 * layers.size());

    const std::span<const Token> tokens(texts[1]);
    auto probe =
        DivergenceProbe::Create(*engine, tokens.first(kContext), tokens.subspan(kContext), 256);
    ASSERT_TRUE(probe) << probe.error().message;
    EXPECT_EQ(probe->Divergence().value(), 0.0);
    double squares = 0;
    int planes = 0;
    for (std::size_t layer = 0; layer < layers.size(); layer += layers.size() / 3) {
      for (const PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
        const std::size_t plane = 2 * layer + static_cast<std::size_t>(kind);
        const Effect effect = TryNoise(*probe, layers[layer], layer, kind, found->planes[plane]);
        const double octaves = std::log2(effect.foretold / effect.measured);
        RecordProperty(file + " plane " + std::to_string(plane), std::to_string(octaves));
        EXPECT_LT(std::abs(octaves), 4) << file << " plane " << plane;
        squares += octaves * octaves;
        ++planes;
      }
    }
    EXPECT_LT(std::sqrt(squares / planes), 2.5) << file;
    EXPECT_EQ(probe->Divergence().value(), 0.0);
  }
}

}  // namespace
}  // namespace kvserve
