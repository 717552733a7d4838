// Chunks taken out of one sequence and put into another, with real models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <span>

#include "engine/llama/model_test_support.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kChunk = 256;

struct Param {
  std::string model;
  DType dtype;
  std::uint32_t prompt_tokens;  // all but the last are moved
};

std::ostream& operator<<(std::ostream& out, const Param& param) {
  return out << param.model << " " << DTypeName(param.dtype) << " " << param.prompt_tokens;
}

std::string ParamName(const testing::TestParamInfo<Param>& info) {
  return (info.param.model[0] == 's' ? "SmolLM2_" : "Gemma3_") +
         std::string(DTypeName(info.param.dtype)) + "_" + std::to_string(info.param.prompt_tokens);
}

class CaptureInject : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    engine_ = OpenTestModel(GetParam().model, GetParam().dtype);
    ASSERT_NE(engine_, nullptr);
  }

  SequenceId Open() {
    const auto sequence = engine_->OpenSequence();
    EXPECT_TRUE(sequence.has_value());
    return sequence.value_or(-1);
  }

  // Prefills all but the last token by chunks and, unless null, captures each chunk right after it.
  void PrefillHead(SequenceId sequence, std::span<const Token> prompt,
                   std::vector<KvBuffer>* captured) {
    const auto total = static_cast<std::uint32_t>(prompt.size() - 1);
    for (std::uint32_t begin = 0; begin < total; begin += kChunk) {
      const TokenRange range{begin, std::min(begin + kChunk, total)};
      const auto status = engine_->Prefill(sequence, prompt.subspan(begin, range.size()), begin);
      ASSERT_TRUE(status) << status.error().message;
      if (captured == nullptr) continue;
      const auto taken = engine_->Capture(sequence, range, total, captured->emplace_back());
      ASSERT_TRUE(taken) << taken.error().message;
    }
  }

  void InjectAll(SequenceId sequence, const std::vector<KvBuffer>& chunks) {
    for (const KvBuffer& chunk : chunks) {
      const auto status = engine_->Inject(sequence, chunk.view());
      ASSERT_TRUE(status) << status.error().message;
    }
  }

  // Logits of the prompt's last token and of `steps` greedy ones after it.
  std::vector<std::vector<float>> Generate(SequenceId sequence, std::span<const Token> prompt,
                                           int steps) {
    std::vector<std::vector<float>> all;
    Token token = prompt.back();
    for (int step = 0; step <= steps; ++step) {
      const auto position = static_cast<std::uint32_t>(prompt.size() - 1 + step);
      const auto logits = engine_->Decode(sequence, token, position);
      EXPECT_TRUE(logits.has_value()) << (logits ? "" : logits.error().message);
      if (!logits) break;
      all.emplace_back(logits->begin(), logits->end());
      token = static_cast<Token>(std::ranges::max_element(all.back()) - all.back().begin());
    }
    return all;
  }

  std::unique_ptr<Engine> engine_;
};

TEST_P(CaptureInject, InjectedSequenceContinuesBitForBit) {
  const auto prompt = ProseTokens(*engine_, GetParam().prompt_tokens);
  std::vector<KvBuffer> chunks;
  const SequenceId source = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(source, prompt, &chunks));
  const auto local = Generate(source, prompt, 8);
  engine_->CloseSequence(source);

  const SequenceId target = Open();
  ASSERT_NO_FATAL_FAILURE(InjectAll(target, chunks));
  const auto remote = Generate(target, prompt, 8);
  ASSERT_EQ(local.size(), 9U);
  EXPECT_EQ(local, remote);
}

TEST_P(CaptureInject, HeadComputedTailInjectedContinuesBitForBit) {
  const auto prompt = ProseTokens(*engine_, GetParam().prompt_tokens);
  std::vector<KvBuffer> chunks;
  const SequenceId source = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(source, prompt, &chunks));
  const auto local = Generate(source, prompt, 2);
  engine_->CloseSequence(source);

  const SequenceId target = Open();
  ASSERT_TRUE(engine_->Prefill(target, std::span(prompt).first(kChunk), 0));
  chunks.erase(chunks.begin());
  ASSERT_NO_FATAL_FAILURE(InjectAll(target, chunks));
  EXPECT_EQ(local, Generate(target, prompt, 2));
}

TEST_P(CaptureInject, CapturingTwiceGivesTheSameBytes) {
  const auto prompt = ProseTokens(*engine_, GetParam().prompt_tokens);
  std::vector<KvBuffer> chunks;
  const SequenceId source = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(source, prompt, &chunks));
  const SequenceId target = Open();
  ASSERT_NO_FATAL_FAILURE(InjectAll(target, chunks));
  KvBuffer again;
  const KvBuffer& last = chunks.back();
  const auto total = static_cast<std::uint32_t>(prompt.size() - 1);
  const auto status = engine_->Capture(target, last.tokens(), total, again);
  ASSERT_TRUE(status) << status.error().message;
  const auto first = last.view();
  const auto second = std::as_const(again).view();
  for (std::size_t i = 0; i < first.layers.size(); ++i) {
    ASSERT_EQ(first.layers[i].tokens, second.layers[i].tokens);
    const std::size_t bytes = first.layers[i].k.values() * DTypeBytes(GetParam().dtype);
    EXPECT_EQ(std::memcmp(first.layers[i].k.data, second.layers[i].k.data, bytes), 0) << i;
  }
}

TEST_P(CaptureInject, OtherSequencesAreLeftAlone) {
  const auto prompt = ProseTokens(*engine_, GetParam().prompt_tokens);
  const auto other = ProseTokens(*engine_, 300, 5);
  std::vector<KvBuffer> chunks;
  const SequenceId alone = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(alone, prompt, &chunks));
  const auto expected = Generate(alone, prompt, 4);
  engine_->CloseSequence(alone);

  // The same again, while another sequence is filled, injected into and decoded in between.
  const SequenceId first = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(first, prompt, nullptr));
  const SequenceId second = Open();
  ASSERT_NO_FATAL_FAILURE(InjectAll(second, chunks));
  EXPECT_EQ(Generate(first, prompt, 4), expected);
  engine_->CloseSequence(second);
  const SequenceId third = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(third, other, nullptr));
  engine_->CloseSequence(first);
  EXPECT_EQ(Generate(third, other, 1).size(), 2U);
}

// What other sequences do must not reach a sequence's last bits: a request's tokens would depend on
// which other requests run.
TEST_P(CaptureInject, EarlierSequencesDoNotMatter) {
  const auto prompt = ProseTokens(*engine_, GetParam().prompt_tokens);
  const SequenceId alone = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(alone, prompt, nullptr));
  const auto expected = Generate(alone, prompt, 4);
  engine_->CloseSequence(alone);

  const SequenceId before = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(before, ProseTokens(*engine_, 174, 5), nullptr));
  const SequenceId behind = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(behind, prompt, nullptr));
  EXPECT_EQ(Generate(behind, prompt, 4), expected);
}

// Whatever the cells of dropped tokens held is not seen, in window layers neither, and the tokens
// after them keep their positions.
TEST_P(CaptureInject, DroppedTokensAreNotSeen) {
  const auto prompt = ProseTokens(*engine_, GetParam().prompt_tokens);
  std::vector<KvBuffer> chunks;
  const SequenceId source = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(source, prompt, &chunks));
  const auto whole = Generate(source, prompt, 2);
  engine_->CloseSequence(source);

  const TokenRange last = chunks.back().tokens();
  const TokenRange dropped[] = {{4, 90}, {last.begin + 3, last.end - 20}};
  std::vector<std::vector<std::vector<float>>> logits;
  for (const bool spoil : {false, true}) {
    for (KvBuffer& chunk : chunks) {
      for (const LayerView& layer : chunk.view().layers) {
        for (std::uint32_t i = 0; spoil && i < layer.tokens.size(); ++i) {
          const std::uint32_t token = layer.tokens.begin + i;
          const bool gone = (token >= dropped[0].begin && token < dropped[0].end) ||
                            (token >= dropped[1].begin && token < dropped[1].end);
          const std::size_t row = layer.k.values() / layer.k.tokens * DTypeBytes(layer.k.dtype);
          if (gone) std::memset(layer.k.at(i, 0, 0), 0x3C, row);
        }
      }
    }
    const SequenceId target = Open();
    ASSERT_NO_FATAL_FAILURE(InjectAll(target, chunks));
    for (const TokenRange tokens : dropped) {
      const auto status = engine_->Drop(target, tokens);
      ASSERT_TRUE(status) << status.error().message;
    }
    logits.push_back(Generate(target, prompt, 2));
    engine_->CloseSequence(target);
  }
  EXPECT_EQ(logits[0].size(), 3U);
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_NE(logits[0], whole);
}

// Evaluation asks several things behind one context: none may see what was asked before.
TEST_P(CaptureInject, TruncatedTokensLeaveNoTrace) {
  const auto prompt = ProseTokens(*engine_, GetParam().prompt_tokens);
  const auto other = ProseTokens(*engine_, 300, 5);
  std::vector<KvBuffer> chunks;
  const SequenceId source = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(source, prompt, &chunks));
  engine_->CloseSequence(source);
  const SequenceId target = Open();
  ASSERT_NO_FATAL_FAILURE(InjectAll(target, chunks));
  const auto next = static_cast<std::uint32_t>(prompt.size() - 1);
  const auto scored = std::span(prompt).last(1);
  const auto before = engine_->Score(target, scored, next);
  ASSERT_TRUE(before) << before.error().message;
  ASSERT_TRUE(engine_->Truncate(target, next));
  ASSERT_TRUE(engine_->Score(target, other, next));
  ASSERT_TRUE(engine_->Truncate(target, next));
  EXPECT_EQ(Generate(target, prompt, 4).size(), 5U);
  ASSERT_TRUE(engine_->Truncate(target, next));
  const auto after = engine_->Score(target, scored, next);
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(*before, *after);
  EXPECT_EQ(engine_->Truncate(target, next + 2).error().code, ErrorCode::kInvalidArgument);
}

TEST_P(CaptureInject, TheLastTokenCannotBeDropped) {
  const auto prompt = ProseTokens(*engine_, GetParam().prompt_tokens);
  const SequenceId sequence = Open();
  ASSERT_NO_FATAL_FAILURE(PrefillHead(sequence, prompt, nullptr));
  const auto next = static_cast<std::uint32_t>(prompt.size() - 1);
  EXPECT_EQ(engine_->Drop(sequence, {next - 1, next}).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(engine_->Drop(sequence, {next, next + 1}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine_->Drop(99, {0, 1}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Generate(sequence, prompt, 1).size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Models, CaptureInject,
                         testing::Values(Param{"smollm2-f16.gguf", DType::kFloat16, 700},
                                         Param{"smollm2-f16.gguf", DType::kBFloat16, 700},
                                         Param{"gemma-3-270m-f16.gguf", DType::kFloat16, 400},
                                         Param{"gemma-3-270m-f16.gguf", DType::kFloat16, 1100},
                                         Param{"gemma-3-270m-f16.gguf", DType::kBFloat16, 1100}),
                         ParamName);

}  // namespace
}  // namespace kvserve
