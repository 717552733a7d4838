// A calibrated transform pays on a real model: at no more bytes, the next-token distributions
// behind keys and values that went through unrope and klt are closer to the uncompressed ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "base/try.h"
#include "calibration/calibrate.h"
#include "calibration/engine_source.h"
#include "engine/llama/llama_engine.h"
#include "engine/llama/process.h"
#include "evaluation/record.h"
#include "kvserve/codec.h"
#include "library/calibration_file.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kContext = 768;
constexpr std::uint32_t kScored = 64;
constexpr std::uint32_t kChunk = 256;
constexpr std::size_t kCalibrationTexts = 6;
constexpr std::size_t kTestTexts = 3;

std::unique_ptr<Engine> Open() {
  LlamaOptions options;
  options.model_path = std::string(std::getenv("KVSERVE_TEST_MODELS")) + "/smollm2-f16.gguf";
  options.context_tokens = kContext + kScored;
  options.sequences = 2;
  options.tap_queries = true;
  PrepareProcessForEngines();
  auto engine = OpenLlamaEngine(options);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

// Texts of at least the length that is tested, cut to it.
std::vector<std::vector<Token>> Texts(const Engine& engine) {
  std::vector<std::vector<Token>> texts;
  const auto records = ReadRecords(KVSERVE_PROMPTS_FILE);
  EXPECT_TRUE(records) << records.error().message;
  for (const Record& record : records.value_or(std::vector<Record>{})) {
    if (texts.size() == kCalibrationTexts + kTestTexts) break;
    auto tokens = engine.Tokenize(record.text, true, false);
    if (!tokens || tokens->size() < kContext + kScored) continue;
    tokens->resize(kContext + kScored);
    texts.push_back(std::move(*tokens));
  }
  EXPECT_EQ(texts.size(), kCalibrationTexts + kTestTexts);
  return texts;
}

struct Measured {
  std::size_t wire_bytes = 0;
  double kl = 0;  // nats per token
};

double Divergence(std::span<const float> reference, std::span<const float> other) {
  const auto log_sum = [](std::span<const float> logits) {
    double largest = -INFINITY;
    for (const float logit : logits) largest = std::max<double>(largest, logit);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - largest);
    return largest + std::log(sum);
  };
  const double p_sum = log_sum(reference);
  const double q_sum = log_sum(other);
  double divergence = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - p_sum;
    divergence += std::exp(log_p) * (log_p - (other[i] - q_sum));
  }
  return divergence;
}

// One prompt: its KV in frames, and the logits behind it.
struct Prompt {
  std::vector<Token> tokens;
  std::vector<KvBuffer> frames;
  std::vector<float> logits;
};

Result<Prompt> Prefilled(Engine& engine, const std::vector<Token>& tokens) {
  Prompt prompt{tokens, {}, {}};
  KVSERVE_ASSIGN(const SequenceId sequence, engine.OpenSequence());
  const std::span<const Token> all(tokens);
  for (std::uint32_t at = 0; at < kContext; at += kChunk) {
    KVSERVE_TRY(engine.Prefill(sequence, all.subspan(at, kChunk), at));
    KVSERVE_TRY(
        engine.Capture(sequence, {at, at + kChunk}, kContext, prompt.frames.emplace_back()));
  }
  KVSERVE_ASSIGN(prompt.logits, engine.Score(sequence, all.subspan(kContext), kContext));
  engine.CloseSequence(sequence);
  return prompt;
}

Result<Measured> Measure(Engine& engine, const Prompt& prompt, const std::string& profile,
                         const CodecOptions& codec) {
  Measured measured;
  KVSERVE_ASSIGN(const Profile parsed, ParseProfile(profile));
  KVSERVE_ASSIGN(const SequenceId sequence, engine.OpenSequence());
  for (const KvBuffer& chunk : prompt.frames) {
    std::vector<std::byte> frame;
    KVSERVE_TRY(EncodeFrame(chunk.view(), parsed, {}, frame, nullptr, codec));
    measured.wire_bytes += frame.size();
    KvBuffer decoded;
    KVSERVE_TRY(DecodeFrame(frame, {}, decoded, nullptr, codec));
    KVSERVE_TRY(engine.Inject(sequence, std::as_const(decoded).view()));
  }
  KVSERVE_ASSIGN(const auto logits,
                 engine.Score(sequence, std::span(prompt.tokens).subspan(kContext), kContext));
  engine.CloseSequence(sequence);
  const std::size_t vocabulary = engine.info().vocabulary;
  for (std::size_t at = 0; at < logits.size(); at += vocabulary) {
    measured.kl += Divergence(std::span(prompt.logits).subspan(at, vocabulary),
                              std::span(logits).subspan(at, vocabulary)) /
                   kScored;
  }
  return measured;
}

TEST(KltModel, BeatsPlainUniformAtEqualSize) {
  const auto engine = Open();
  ASSERT_NE(engine, nullptr);
  auto texts = Texts(*engine);
  ASSERT_EQ(texts.size(), kCalibrationTexts + kTestTexts);
  const std::vector<std::vector<Token>> tested(texts.begin() + kCalibrationTexts, texts.end());
  texts.resize(kCalibrationTexts);
  EngineSource source(*engine, std::move(texts), kChunk);
  CalibrationOptions options;
  options.query_statistics = options.head_scores = true;
  const auto contents = Calibrate(source, options);
  ASSERT_TRUE(contents) << contents.error().message;
  ASSERT_EQ(contents->head_scores.size(), 30U);
  const auto artefact = ParseCalibration(FormatCalibration(*contents).value());
  ASSERT_TRUE(artefact) << artefact.error().message;
  const CodecOptions codec{.threads = 2, .calibration = *artefact};

  std::vector<Prompt> prompts;
  for (const auto& tokens : tested) {
    auto prompt = Prefilled(*engine, tokens);
    ASSERT_TRUE(prompt) << prompt.error().message;
    prompts.push_back(std::move(*prompt));
  }
  const auto total = [&](const std::string& profile) {
    Measured sum;
    for (const Prompt& prompt : prompts) {
      const auto measured = Measure(*engine, prompt, profile, codec);
      EXPECT_TRUE(measured) << profile << ": " << measured.error().message;
      if (!measured) return sum;
      sum.wire_bytes += measured->wire_bytes;
      sum.kl += measured->kl / kTestTexts;
    }
    std::printf("%-80s %8zu bytes, KL %.5f\n", profile.c_str(), sum.wire_bytes, sum.kl);
    return sum;
  };
  const auto expect_better = [&](const char* better, const char* other) {
    const Measured left = total(better);
    const Measured right = total(other);
    EXPECT_LE(left.wire_bytes, right.wire_bytes) << better;
    EXPECT_LT(left.kl, right.kl) << better;
  };
  expect_better("unrope|klt:scope=joint|uniform:k_levels=48,v_levels=24,axis=tensor|rans",
                "uniform:k_levels=10,v_levels=6|rans");
  // Parts of two methods: keys by their axes, values by rotation.
  expect_better(
      "unrope|klt:scope=joint,v_on=0|hadamard:k_on=0|"
      "uniform:k_levels=64,k_axis=tensor,v_levels=8,v_axis=token|rans",
      "hadamard|uniform:k_levels=16,v_levels=8|rans");
  // For people who look for better ones: short forms, parted by spaces.
  if (const char* more = std::getenv("KVSERVE_TEST_PROFILES")) {
    std::istringstream profiles(more);
    for (std::string profile; profiles >> profile;) total(profile);
  }
}

}  // namespace
}  // namespace kvserve
