#include "evaluation/probe_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/testing/fake_engine.h"
#include "evaluation/prepared_prompt.h"

namespace kvserve {
namespace {

using FakeEngine = ::kvserve::testing::FakeEngine;

std::vector<Token> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

class ProbeRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto sequence = OpenedSequence::Open(engine_);
    ASSERT_TRUE(sequence);
    sequence_.emplace(std::move(*sequence));
    ASSERT_TRUE(engine_.Prefill(sequence_->id(), Bytes(kContext), 0));
  }
  ProbeRunner Runner() { return {engine_, sequence_->id(), kContext.size()}; }
  // The same context with its last token evaluated on its own, which is other KV to this engine.
  void OtherKv() {
    ASSERT_TRUE(engine_.Truncate(sequence_->id(), kContext.size() - 1));
    ASSERT_TRUE(engine_.Prefill(sequence_->id(), Bytes(kContext.substr(kContext.size() - 1)),
                                kContext.size() - 1));
  }

  static constexpr std::string_view kContext = "some context of a few tokens";
  FakeEngine engine_{{}};
  std::optional<OpenedSequence> sequence_;
};

TEST_F(ProbeRunnerTest, TheSameKvSaysTheSame) {
  Probe probe;
  probe.lead = Bytes("lead");
  probe.answer = Bytes("answer");
  probe.generate_tokens = 9;
  auto runner = Runner();
  const auto reference = runner.Reference(probe);
  ASSERT_TRUE(reference) << reference.error().message;
  EXPECT_EQ(reference->answer.rows(), 7U);
  EXPECT_EQ(reference->outcome.generated.size(), 9U);
  EXPECT_EQ(reference->outcome.answer_tokens, 6U);
  for (int again = 0; again < 2; ++again) {  // a probe leaves no trace
    const auto score = runner.Score(probe, *reference);
    ASSERT_TRUE(score) << score.error().message;
    EXPECT_EQ(score->answer.kl, 0.0);
    EXPECT_EQ(score->outcome.nll, reference->outcome.nll);
    EXPECT_EQ(score->outcome.output, reference->outcome.output);
    EXPECT_EQ(score->equal_tokens, 9U);
    EXPECT_EQ(score->first_difference, 9U);
  }
}

TEST_F(ProbeRunnerTest, GenerationIsGreedyDecoding) {
  Probe probe;
  probe.lead = Bytes("lead");
  probe.generate_tokens = 20;
  probe.one_line = false;
  auto runner = Runner();
  const auto reference = runner.Reference(probe);
  ASSERT_TRUE(reference);
  ASSERT_TRUE(engine_.Prefill(sequence_->id(), Bytes("lea"), kContext.size()));
  Token last = 'd';
  std::vector<Token> expected;
  for (std::uint32_t i = 0; i < 20; ++i) {
    const auto position = static_cast<std::uint32_t>(kContext.size()) + 3 + i;
    const auto logits = engine_.Decode(sequence_->id(), last, position);
    ASSERT_TRUE(logits);
    last = static_cast<Token>(std::ranges::max_element(*logits) - logits->begin());
    expected.push_back(last);
  }
  EXPECT_EQ(reference->outcome.generated, expected);
}

TEST_F(ProbeRunnerTest, OtherKvIsComparedAlongTheReferencesText) {
  Probe probe;
  probe.lead = Bytes("l");
  probe.generate_tokens = 30;
  probe.one_line = false;
  probe.along_generation = true;
  const auto reference = Runner().Reference(probe);
  ASSERT_TRUE(reference) << reference.error().message;
  EXPECT_EQ(reference->along.rows(), reference->outcome.generated.size());
  OtherKv();
  const auto score = Runner().Score(probe, *reference);
  ASSERT_TRUE(score) << score.error().message;
  EXPECT_EQ(score->along.rows, 30U);
  EXPECT_GT(score->along.kl, 0.1);
  EXPECT_EQ(score->outcome.generated.size(), 30U);
  EXPECT_LT(score->equal_tokens, 30U);
  ASSERT_LT(score->first_difference, 30U);
  EXPECT_NE(score->outcome.generated[score->first_difference],
            reference->outcome.generated[score->first_difference]);
  // What it generates by itself does not depend on what the reference said.
  const auto own = Runner().Reference(probe);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->outcome.generated, score->outcome.generated);
}

TEST_F(ProbeRunnerTest, EndTokensEnd) {
  FakeEngine engine({.end_tokens = true});
  auto sequence = OpenedSequence::Open(engine);
  ASSERT_TRUE(sequence);
  ASSERT_TRUE(engine.Prefill(sequence->id(), Bytes(kContext), 0));
  ProbeRunner runner(engine, sequence->id(), kContext.size());
  Probe probe;
  probe.lead = Bytes("l");
  probe.generate_tokens = 300;
  probe.one_line = false;
  const auto reference = runner.Reference(probe);
  ASSERT_TRUE(reference);
  ASSERT_LT(reference->outcome.generated.size(), 300U);
  EXPECT_EQ(reference->outcome.generated.back(), FakeEngine::kEndToken);
  EXPECT_EQ(reference->outcome.output.size(), reference->outcome.generated.size() - 1);
}

}  // namespace
}  // namespace kvserve
