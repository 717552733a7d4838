// The same for Gemma, whose terms let nobody ship its KV: captured here.
#include <gtest/gtest.h>

#include <utility>

#include "engine/llama/model_test_support.h"
#include "engine/llama/process.h"
#include "golden/size_table.h"

namespace kvserve {
namespace {

TEST(Sizes, OfGemmaCapturedHere) {
  PrepareProcessForEngines();
  const auto engine = OpenTestModel("gemma-3-270m-f16.gguf", DType::kFloat16, 1);
  ASSERT_NE(engine, nullptr);
  constexpr std::uint32_t kTokens = 128;
  const auto tokens = ProseTokens(*engine, kTokens);
  const auto sequence = engine->OpenSequence();
  ASSERT_TRUE(sequence) << sequence.error().message;
  const auto prefilled = engine->Prefill(*sequence, tokens, 0);
  ASSERT_TRUE(prefilled) << prefilled.error().message;
  KvBuffer kv;
  const auto captured = engine->Capture(*sequence, {0, kTokens}, kTokens, kv);
  ASSERT_TRUE(captured) << captured.error().message;
  // llama.cpp's floats differ from machine to machine in the last bits.
  testing::CheckSizes(KVSERVE_SIZES_FILE, "gemma-3-270m-f16",
                      testing::MeasureSizes(std::as_const(kv).view()),
                      {.bytes = 0.005, .foreign_bytes = 0.02, .error = 0.02});
}

}  // namespace
}  // namespace kvserve
