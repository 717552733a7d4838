// Models and texts for tests with real models.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/llama/llama_engine.h"

namespace kvserve {

inline const char* const kTestModels[] = {"smollm2-f16.gguf", "gemma-3-270m-f16.gguf"};

inline std::string TestModelPath(const std::string& file) {
  const char* folder = std::getenv("KVSERVE_TEST_MODELS");
  return std::string(folder == nullptr ? "KVSERVE_TEST_MODELS-is-not-set" : folder) + "/" + file;
}

inline std::unique_ptr<Engine> OpenTestModel(const std::string& file, DType dtype,
                                             std::uint32_t sequences = 2) {
  LlamaOptions options;
  options.model_path = TestModelPath(file);
  options.context_tokens = 1536;
  options.sequences = sequences;
  options.cache_dtype = dtype;
  auto engine = OpenLlamaEngine(options);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    return nullptr;
  }
  return std::move(*engine);
}

// Plain prose, `count` tokens; `variant` changes every sentence.
inline std::vector<Token> ProseTokens(const Engine& engine, std::size_t count, int variant = 0) {
  std::string text;
  for (int i = 0; text.size() < count * 6; ++i) {
    text +=
        "On day " + std::to_string(i * 37 + variant) + " the harbour master wrote that " +
        std::to_string(i % 9 + 2 + variant) + " ships had come in from the north, carrying " +
        (i % 3 == 0 ? "salt, timber and letters. " : "wool, glass and two tired cartographers. ");
  }
  auto tokens = engine.Tokenize(text, true, false);
  EXPECT_TRUE(tokens.has_value());
  EXPECT_GE(tokens->size(), count);
  tokens->resize(count);
  return std::move(*tokens);
}

}  // namespace kvserve
