// Queries that the tap shows: both forms of every layer, in step with the prefill, and nothing else
// changes by it.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/llama/model_test_support.h"
#include "engine/llama/rope_fit.h"

namespace kvserve {
namespace {

struct Shown {
  std::vector<float> before, after;  // [token, head, dim]
  std::uint32_t heads = 0, dim = 0;
};
using Queries = std::map<std::uint32_t, Shown>;  // by layer

std::unique_ptr<Engine> OpenTapped(const std::string& file) {
  LlamaOptions options;
  options.model_path = TestModelPath(file);
  options.context_tokens = 512;
  options.sequences = 2;
  options.tap_queries = true;
  auto engine = OpenLlamaEngine(options);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

QueryTap Into(Queries& queries, std::uint32_t& tokens) {
  return [&](std::uint32_t layer, std::uint32_t first, std::span<const float> values,
             std::uint32_t heads, std::uint32_t dim, bool rotated) {
    Shown& shown = queries[layer];
    shown.heads = heads;
    shown.dim = dim;
    auto& to = rotated ? shown.after : shown.before;
    EXPECT_EQ(to.size(), std::size_t{first} * heads * dim) << "layer " << layer;
    EXPECT_EQ(shown.before.size() >= shown.after.size(), true);
    to.insert(to.end(), values.begin(), values.end());
    tokens = std::max(tokens, first + static_cast<std::uint32_t>(values.size() / (heads * dim)));
  };
}

TEST(QueryTapModel, ShowsEveryLayerBeforeAndAfterRotation) {
  for (const char* file : kTestModels) {
    const auto engine = OpenTapped(file);
    ASSERT_NE(engine, nullptr);
    const auto tokens = ProseTokens(*engine, 101);
    Queries queries;
    std::uint32_t seen = 0;
    ASSERT_TRUE(engine->TapQueries(Into(queries, seen)));
    const SequenceId sequence = engine->OpenSequence().value();
    const std::span<const Token> all(tokens);
    ASSERT_TRUE(engine->Prefill(sequence, all.first(60), 0));
    ASSERT_TRUE(engine->Prefill(sequence, all.subspan(60, 40), 60));
    ASSERT_TRUE(engine->Prefill(sequence, all.subspan(100, 1), 100));
    EXPECT_EQ(seen, 101U);
    const auto& layers = engine->info().geometry.layers;
    ASSERT_EQ(queries.size(), layers.size()) << file;
    for (const auto& [layer, shown] : queries) {
      EXPECT_EQ(shown.dim, layers[layer].k_dim);
      EXPECT_EQ(shown.heads % layers[layer].kv_heads, 0U);
      ASSERT_EQ(shown.before.size(), std::size_t{101} * shown.heads * shown.dim);
      const auto fit =
          FitRope(shown.before, shown.after, shown.heads, shown.dim, layers[layer].rope_theta);
      ASSERT_TRUE(fit) << file << " layer " << layer;
      EXPECT_EQ(fit->style, layers[layer].rope_style);
    }
  }
}

TEST(QueryTapModel, ChangesNothingAndEnds) {
  const auto tapped = OpenTapped(kTestModels[0]);
  const auto plain = OpenTestModel(kTestModels[0], DType::kFloat16);
  ASSERT_NE(tapped, nullptr);
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->TapQueries([](auto&&...) {}).error().code, ErrorCode::kUnsupported);
  const auto tokens = ProseTokens(*plain, 50);
  int calls = 0;
  ASSERT_TRUE(tapped->TapQueries([&](auto&&...) { ++calls; }));
  std::vector<std::vector<float>> logits;
  for (Engine* engine : {tapped.get(), plain.get()}) {
    const SequenceId sequence = engine->OpenSequence().value();
    ASSERT_TRUE(engine->Prefill(sequence, std::span(tokens).first(49), 0));
    const int after_prefill = calls;
    const auto decoded = engine->Decode(sequence, tokens[49], 49);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(calls, after_prefill);  // Decode shows nothing
    logits.emplace_back(decoded->begin(), decoded->end());
    engine->CloseSequence(sequence);
  }
  EXPECT_EQ(calls, 2 * 30);
  EXPECT_EQ(logits[0], logits[1]);
  ASSERT_TRUE(tapped->TapQueries(nullptr));
  const SequenceId sequence = tapped->OpenSequence().value();
  ASSERT_TRUE(tapped->Prefill(sequence, std::span(tokens).first(49), 0));
  EXPECT_EQ(calls, 2 * 30);
}

}  // namespace
}  // namespace kvserve
