// Loading real models: what is learnt about them, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/llama/model_test_support.h"

namespace kvserve {
namespace {

using testing::HasSubstr;

TEST(OpenModel, LearnsTheLayoutOfSmolLM2) {
  const auto engine = OpenTestModel("smollm2-f16.gguf", DType::kFloat16);
  ASSERT_NE(engine, nullptr);
  const KvGeometry& geometry = engine->info().geometry;
  EXPECT_EQ(engine->info().architecture, "llama");
  ASSERT_EQ(geometry.layers.size(), 30U);
  for (const LayerGeometry& layer : geometry.layers) {
    EXPECT_EQ(layer, (LayerGeometry{3, 64, 64, 0, RopeStyle::kInterleaved, 1e5F}));
  }
}

TEST(OpenModel, LearnsTheWindowsOfGemma3) {
  const auto engine = OpenTestModel("gemma-3-270m-f16.gguf", DType::kBFloat16);
  ASSERT_NE(engine, nullptr);
  const KvGeometry& geometry = engine->info().geometry;
  EXPECT_EQ(geometry.dtype, DType::kBFloat16);
  ASSERT_EQ(geometry.layers.size(), 18U);
  for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
    const bool all_tokens = i % 6 == 5;
    EXPECT_EQ(geometry.layers[i], (LayerGeometry{1, 256, 256, all_tokens ? 0U : 512U,
                                                 RopeStyle::kHalves, all_tokens ? 1e6F : 1e4F}))
        << i;
  }
}

TEST(OpenModel, FingerprintTellsModelsAndCacheTypesApart) {
  const auto a = OpenTestModel("smollm2-f16.gguf", DType::kFloat16);
  const auto again = OpenTestModel("smollm2-f16.gguf", DType::kFloat16);
  const auto b = OpenTestModel("smollm2-f16.gguf", DType::kBFloat16);
  const auto c = OpenTestModel("gemma-3-270m-f16.gguf", DType::kFloat16);
  EXPECT_EQ(a->info().fingerprint, again->info().fingerprint);
  EXPECT_NE(a->info().fingerprint, b->info().fingerprint);
  EXPECT_NE(a->info().fingerprint, c->info().fingerprint);
}

TEST(OpenModel, RefusesWrongOptionsBeforeLoading) {
  LlamaOptions options;
  options.model_path = "/nonexistent/model.gguf";
  options.cache_dtype = DType::kFloat8E4M3FN;
  EXPECT_EQ(OpenLlamaEngine(options).error().code, ErrorCode::kUnsupported);
  options.cache_dtype.reset();
  options.sequences = 0;
  EXPECT_EQ(OpenLlamaEngine(options).error().code, ErrorCode::kInvalidArgument);
  options.sequences = 1;
  EXPECT_EQ(OpenLlamaEngine(options).error().code, ErrorCode::kBadInput);
}

TEST(OpenModel, WorksWithOneTokenAtATime) {
  for (const std::uint32_t context : {1U, 2U, 64U}) {
    LlamaOptions options;
    options.model_path = TestModelPath("smollm2-f16.gguf");
    options.context_tokens = context;
    options.chunk_tokens = 1;
    options.sequences = 1;
    const auto engine = OpenLlamaEngine(options);
    ASSERT_TRUE(engine) << engine.error().message;
    const auto sequence = (*engine)->OpenSequence();
    ASSERT_TRUE(sequence) << sequence.error().message;
    const auto logits = (*engine)->Decode(*sequence, 5, 0);
    EXPECT_TRUE(logits) << logits.error().message;
  }
}

TEST(OpenModel, RefusesTextThatIsNotUtf8) {
  const auto engine = OpenTestModel("smollm2-f16.gguf", DType::kFloat16);
  ASSERT_NE(engine, nullptr);
  const auto tokens = engine->Tokenize("\xF7\xBF\xBF\xBF", true, false);  // beyond U+10FFFF
  ASSERT_FALSE(tokens);
  EXPECT_EQ(tokens.error().code, ErrorCode::kBadInput);
}

TEST(OpenModel, RefusesFilesThatAreNoModel) {
  const std::string path = testing::TempDir() + "not-a-model.gguf";
  const auto open = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    LlamaOptions options;
    options.model_path = path;
    return OpenLlamaEngine(options);
  };
  EXPECT_EQ(open("").error().code, ErrorCode::kBadInput);
  EXPECT_THAT(open("hello, world").error().message, HasSubstr("not a GGUF"));
  EXPECT_EQ(open("GGUF").error().code, ErrorCode::kBadInput);
  EXPECT_EQ(open("GGUF" + std::string(64, '\xFF')).error().code, ErrorCode::kBadInput);
  std::ifstream whole(TestModelPath("smollm2-f16.gguf"), std::ios::binary);
  std::string start(4 << 20, '\0');
  whole.read(start.data(), static_cast<std::streamsize>(start.size()));
  EXPECT_EQ(open(start).error().code, ErrorCode::kBadInput);
  std::filesystem::remove(path);
}

class OpenSequences : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = OpenTestModel("smollm2-f16.gguf", DType::kFloat16, 2);
    ASSERT_NE(engine_, nullptr);
  }
  std::unique_ptr<Engine> engine_;
};

TEST_F(OpenSequences, AreLimited) {
  const auto first = engine_->OpenSequence();
  ASSERT_TRUE(first && engine_->OpenSequence());
  EXPECT_EQ(engine_->OpenSequence().error().code, ErrorCode::kResourceExhausted);
  engine_->CloseSequence(*first);
  EXPECT_EQ(engine_->OpenSequence().value(), *first);
}

TEST_F(OpenSequences, RefuseWhatWouldCorruptThem) {
  const SequenceId sequence = engine_->OpenSequence().value();
  const auto prompt = ProseTokens(*engine_, 300);
  const auto code = [](const Status& status) { return status ? ErrorCode{} : status.error().code; };
  const auto tokens = std::span(prompt);
  EXPECT_EQ(code(engine_->Prefill(sequence, tokens.first(8), 4)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(engine_->Prefill(sequence, tokens.first(0), 0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(engine_->Prefill(sequence, tokens, 0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(engine_->Prefill(sequence + 1, tokens.first(8), 0)), ErrorCode::kInvalidArgument);
  const Token beyond[] = {static_cast<Token>(engine_->info().vocabulary)};
  EXPECT_EQ(code(engine_->Prefill(sequence, beyond, 0)), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(engine_->Prefill(sequence, tokens.first(8), 0));
  KvBuffer chunk;
  EXPECT_EQ(code(engine_->Capture(sequence, {4, 12}, 12, chunk)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(engine_->Capture(sequence, {4, 4}, 12, chunk)), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(engine_->Capture(sequence, {4, 8}, 8, chunk));
  EXPECT_EQ(code(engine_->Inject(sequence, std::as_const(chunk).view())),
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(engine_->Decode(sequence, prompt[8], 8));
}

TEST_F(OpenSequences, EndAtTheContext) {
  const SequenceId sequence = engine_->OpenSequence().value();
  const auto prompt = ProseTokens(*engine_, 1536);
  for (std::uint32_t at = 0; at < 1536; at += 256) {
    ASSERT_TRUE(engine_->Prefill(sequence, std::span(prompt).subspan(at, 256), at));
  }
  EXPECT_EQ(engine_->Decode(sequence, prompt[0], 1536).error().code, ErrorCode::kResourceExhausted);
}

TEST_F(OpenSequences, RefuseChunksOfAnotherCacheType) {
  const auto other = OpenTestModel("smollm2-f16.gguf", DType::kBFloat16);
  const SequenceId source = other->OpenSequence().value();
  const auto prompt = ProseTokens(*other, 16);
  ASSERT_TRUE(other->Prefill(source, prompt, 0));
  KvBuffer chunk;
  ASSERT_TRUE(other->Capture(source, {0, 16}, 16, chunk));
  const auto status = engine_->Inject(engine_->OpenSequence().value(), std::as_const(chunk).view());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
  EXPECT_THAT(status.error().message, HasSubstr("bfloat16"));
}

TEST(WindowLayers, MustReachBackFarEnough) {
  const auto engine = OpenTestModel("gemma-3-270m-f16.gguf", DType::kFloat16);
  const SequenceId source = engine->OpenSequence().value();
  const auto prompt = ProseTokens(*engine, 256);
  ASSERT_TRUE(engine->Prefill(source, prompt, 0));
  KvBuffer chunk;  // as for a prompt of 700 tokens: only the last 68 of these in window layers
  ASSERT_TRUE(engine->Capture(source, {0, 256}, 700, chunk));
  const SequenceId target = engine->OpenSequence().value();
  ASSERT_TRUE(engine->Inject(target, std::as_const(chunk).view()));
  EXPECT_EQ(engine->Decode(target, prompt[0], 256).error().code, ErrorCode::kBadInput);
}

TEST_F(OpenSequences, SpeakTheChatTemplateAndText) {
  const ChatMessage message{"user", "Hello"};
  const auto prompt = engine_->ChatPrompt(std::span(&message, 1));
  ASSERT_TRUE(prompt);
  EXPECT_THAT(*prompt, HasSubstr("<|im_start|>user\nHello<|im_end|>"));
  const auto tokens = engine_->Tokenize(*prompt, true, true);
  ASSERT_TRUE(tokens);
  std::string text;
  for (const Token token : *tokens) text += engine_->TokenText(token);
  EXPECT_THAT(text, HasSubstr("user\nHello"));
  const auto end = engine_->Tokenize("<|im_end|>", false, true);
  ASSERT_EQ(end->size(), 1U);
  EXPECT_TRUE(engine_->EndsGeneration(end->front()));
  EXPECT_FALSE(engine_->EndsGeneration(-1));
  EXPECT_EQ(engine_->TokenText(-1), "");
}

// As root a rename would put a model in the place of the device.
TEST(Dequantize, LeavesDevicesAlone) {
  const Status status = DequantizeModel(TestModelPath(kTestModels[0]), "/dev/null");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvserve
