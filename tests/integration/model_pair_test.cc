// Real models: the pair gives the greedy tokens of one local node, for every exact profile.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "engine/llama/llama_engine.h"
#include "pair.h"

namespace kvserve::testing {
namespace {

constexpr std::uint32_t kContext = 1024;

// Sentences with names and numbers, so that a wrong token of the prompt matters.
std::string Story(std::size_t sentences, unsigned salt) {
  const char* names[] = {"Ada", "Boris", "Chen", "Dora", "Emil"};
  const char* places[] = {"the harbour", "a mill", "the library", "a garden", "the station"};
  std::string text;
  for (std::size_t i = 0; i < sentences; ++i) {
    const std::size_t k = i * 7 + salt * 13;
    text += std::string(names[k % 5]) + " walked to " + places[(k / 5) % 5] + " with " +
            std::to_string(k % 89) + " letters, and wrote down the number " +
            std::to_string((k * k) % 997) + ". ";
  }
  return text + "In the end,";
}

std::unique_ptr<EngineWorker> Open(const std::filesystem::path& model) {
  LlamaOptions options;
  options.model_path = model.string();
  options.context_tokens = kContext;
  options.sequences = 2;
  auto worker = EngineWorker::Start([&] { return OpenLlamaEngine(options); });
  EXPECT_TRUE(worker) << worker.error().message;
  return worker ? std::move(*worker) : nullptr;
}

class ModelPair : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelPair, ExactProfilesGiveTheTokensOfALocalNode) {
  const auto model = std::filesystem::path(std::getenv("KVSERVE_TEST_MODELS")) / GetParam();
  ASSERT_TRUE(std::filesystem::exists(model)) << model;
  const auto prefill_engine = Open(model);
  const auto decode_engine = Open(model);
  ASSERT_TRUE(prefill_engine && decode_engine);
  PrefillNodeOptions prefill_options;
  prefill_options.sequences = 2;
  const auto prefill = PrefillNode::Start(*prefill_engine, prefill_options);
  ASSERT_TRUE(prefill) << prefill.error().message;
  DecodeNodeOptions options;
  options.sequences = 2;
  const auto local = DecodeNode::Create(*decode_engine, options);
  options.prefill = (*prefill)->address();
  const auto paired = DecodeNode::Create(*decode_engine, options);
  // The last prompt is longer than a window of 512 and than two chunks.
  for (const std::size_t sentences : {1, 6, 11, 28}) {
    auto tokens = decode_engine->text().Tokenize(Story(sentences, sentences), true, false);
    ASSERT_TRUE(tokens);
    if (sentences == 28) EXPECT_GT(tokens->size(), 520U);
    const auto expected = MustGenerate(**local, Greedy(*tokens, 16));
    EXPECT_EQ(expected.source, KvSource::kLocal);
    for (const char* profile : {"none", "lossless"}) {
      const auto report = MustGenerate(**paired, Greedy(*tokens, 16, profile));
      EXPECT_EQ(report.source, KvSource::kTransferred) << report.reason;
      EXPECT_EQ(report.transfer.tokens, tokens->size() - 1);
      EXPECT_EQ(report.tokens, expected.tokens) << profile << ", " << tokens->size() << " tokens";
      if (profile == std::string("lossless")) {
        EXPECT_LT(report.transfer.wire_bytes, report.transfer.raw_bytes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ModelPair,
                         ::testing::Values("smollm2-f16.gguf", "gemma-3-270m-f16.gguf"),
                         [](const auto& model) { return std::string(model.param).substr(0, 5); });

}  // namespace
}  // namespace kvserve::testing
