// A pair of nodes whose peers behave: what arrives is what one process would have computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "library/calibration_artefact.h"
#include "pair.h"

namespace kvserve::testing {
namespace {

using ::testing::HasSubstr;

TEST(Pair, ExactProfilesGiveTheTokensOfALocalRun) {
  Pair pair;
  for (const char* profile : {"none", "lossless"}) {
    const auto request = Greedy(Prompt(100), 20, profile);
    const GenerateReport report = MustGenerate(*pair.decode, request);
    EXPECT_EQ(report.tokens, LocalTokens(request)) << profile;
    EXPECT_EQ(report.source, KvSource::kTransferred);
    EXPECT_EQ(report.reason, "pinned");
    EXPECT_EQ(report.profile, profile);
    EXPECT_EQ(report.transfer.tokens, 99U);
    EXPECT_EQ(report.transfer.chunks, 7U);
  }
  EXPECT_EQ(pair.decode_worker.engine->prefilled_tokens(), 0);
  EXPECT_EQ(pair.prefill_worker.engine->decoded_tokens(), 0);
}

TEST(Pair, LossyProfilesAreSmallerAndDifferFromExact) {
  Pair pair;
  const auto exact = MustGenerate(*pair.decode, Greedy(Prompt(200), 30));
  const auto lossy =
      MustGenerate(*pair.decode, Greedy(Prompt(200), 30, "hadamard|uniform:levels=4|bitpack"));
  EXPECT_EQ(lossy.source, KvSource::kTransferred) << lossy.reason;
  EXPECT_LT(lossy.transfer.wire_bytes, exact.transfer.wire_bytes);
  EXPECT_EQ(lossy.transfer.raw_bytes, exact.transfer.raw_bytes);
  EXPECT_NE(lossy.tokens, exact.tokens);  // the fake's logits hash every byte
}

// A prompt's last token is decoded alone; chunk borders must not lose or repeat any other.
// The engine's cells of dropped tokens are gone: of its 99 tokens it keeps 4 sinks and the last 20.
TEST(Pair, TokensThatAProfileDropsAreNotInTheSequence) {
  Pair pair;
  const std::string profile = "window:sinks=4,recent=20,outside=0|mixed:levels=256|rans";
  const auto report = MustGenerate(*pair.decode, Greedy(Prompt(100), 20, profile));
  EXPECT_EQ(report.source, KvSource::kTransferred) << report.reason;
  EXPECT_EQ(report.transfer.tokens, 99U);
  EXPECT_EQ(report.transfer.dropped_tokens, 75U);
  EXPECT_EQ(pair.decode_worker.engine->dropped_tokens(), 75);
  EXPECT_EQ(report.tokens.size(), 20U);
  // The same at lower precision instead drops none.
  const std::string thinned = "window:sinks=4,recent=20,outside=0.25|mixed:levels=256|rans";
  const auto whole = MustGenerate(*pair.decode, Greedy(Prompt(100), 20, thinned));
  EXPECT_EQ(whole.transfer.dropped_tokens, 0U);
  EXPECT_NE(whole.tokens, report.tokens);
}

// Layers that choose for themselves: a cell of this engine is one token of all layers.
TEST(Pair, TokensThatOnlySomeLayersDropAreNoSequence) {
  Pair pair;
  const std::string profile = "buckets:keep=0.5,outside=0,scope=layer,recent=4|mixed|rans";
  const auto report = MustGenerate(*pair.decode, Greedy(Prompt(100), 5, profile));
  EXPECT_EQ(report.source, KvSource::kRecomputed);
  EXPECT_THAT(report.reason, HasSubstr("unsupported"));
  EXPECT_EQ(report.tokens, LocalTokens(Greedy(Prompt(100), 5)));
}

TEST(Pair, AProfileThatNeedsQueriesIsRefused) {
  Pair pair;
  const auto refused = pair.decode->CheckRequest(Greedy(Prompt(100), 5, "attention|mixed|rans"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("'attention'"));
}

TEST(Pair, CountsAreExactAtEveryBorder) {
  for (const std::uint32_t chunk : {16U, 256U}) {
    PairOptions options;
    options.prefill.chunk_tokens = options.decode.chunk_tokens = chunk;
    Pair pair(options);
    for (const std::size_t length : {1, 2, 15, 16, 17, 31, 32, 33, 48, 255, 256, 257, 513}) {
      const int injected = pair.decode_worker.engine->injected_tokens();
      const int prefilled = pair.prefill_worker.engine->prefilled_tokens();
      const auto request = Greedy(Prompt(length));
      const GenerateReport report = MustGenerate(*pair.decode, request);
      const int sent = static_cast<int>(length) - 1;
      EXPECT_EQ(report.tokens, LocalTokens(request, chunk)) << length;
      EXPECT_EQ(report.transfer.tokens, static_cast<std::uint32_t>(sent));
      EXPECT_EQ(report.recomputed_tokens, 0U);
      EXPECT_EQ(pair.decode_worker.engine->injected_tokens() - injected, sent);
      EXPECT_EQ(pair.prefill_worker.engine->prefilled_tokens() - prefilled, sent);
    }
    EXPECT_EQ(pair.decode_worker.engine->prefilled_tokens(), 0);
  }
}

TEST(Pair, WindowLayersSendOnlyTheirWindow) {
  PairOptions options;
  options.prefill_engine.window_tokens = options.decode_engine.window_tokens = 1024;
  Pair whole(options);
  Pair windowed;  // 64 tokens in one of three layers
  const auto request = Greedy(Prompt(500));
  const auto all = MustGenerate(*whole.decode, request);
  const auto some = MustGenerate(*windowed.decode, request);
  // 435 of 499 tokens of layer 1: 2 heads of 8 + 8 values of 2 bytes.
  EXPECT_EQ(all.transfer.raw_bytes - some.transfer.raw_bytes, 435U * 64U);
}

TEST(Pair, ConcurrentRequestsEqualSoloRuns) {
  Pair pair;
  std::vector<GenerateRequest> requests;
  std::vector<std::vector<Token>> expected;
  for (unsigned i = 0; i < 8; ++i) {
    requests.push_back(Greedy(Prompt(60 + 50 * i, i), 25, i % 2 == 0 ? "none" : "lossless"));
    if (i % 3 == 0) requests.back().sampling = {.temperature = 1.0F, .top_p = 0.9F, .seed = i};
    expected.push_back(LocalTokens(requests.back()));
  }
  std::vector<std::vector<Token>> got(requests.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] { got[i] = MustGenerate(*pair.decode, requests[i]).tokens; });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(got, expected);
  EXPECT_EQ(pair.decode->metrics().fallbacks(), 0);
  EXPECT_EQ(pair.decode_worker.engine->open_sequences(), 0);
  EXPECT_TRUE(Eventually([&] { return pair.prefill_worker.engine->open_sequences() == 0; }));
}

TEST(Pair, AConnectionIsUsedAgain) {
  Pair pair;
  for (int i = 0; i < 5; ++i) MustGenerate(*pair.decode, Greedy(Prompt(40)));
  EXPECT_EQ(pair.prefill->connections(), 1U);
}

TEST(Pair, AChunkThatALossyProfileCannotEncodeGoesLossless) {
  PairOptions options;
  options.prefill_engine.nan_token = options.decode_engine.nan_token = 'Q';
  Pair pair(options);
  auto prompt = Prompt(64);
  std::replace(prompt.begin(), prompt.end(), Token{'Q'}, Token{'R'});
  prompt[20] = 'Q';
  const auto report = MustGenerate(*pair.decode, Greedy(prompt, 4, "hadamard|uniform|bitpack"));
  EXPECT_EQ(report.source, KvSource::kTransferred) << report.reason;
  EXPECT_EQ(report.transfer.chunks, 4U);
  EXPECT_EQ(report.transfer.lossless_fallback_chunks, 1U);
}

// Frames of a few tokens are mostly headers and tables: no profile makes a transfer larger than
// none does.
TEST(Pair, NoProfileSendsMoreThanNone) {
  Pair pair;
  for (const std::size_t tokens : {2U, 3U, 5U, 17U, 18U}) {
    const auto none = MustGenerate(*pair.decode, Greedy(Prompt(tokens), 2, "none"));
    EXPECT_EQ(none.transfer.lossless_fallback_chunks, 0U);
    for (const char* profile : {"lossless", "hadamard|uniform|rans", "uniform|bitpack", "fp8|lz4",
                                "affine|uniform:raw_first=false|zstd"}) {
      const auto report = MustGenerate(*pair.decode, Greedy(Prompt(tokens), 2, profile));
      EXPECT_EQ(report.source, KvSource::kTransferred) << report.reason;
      EXPECT_LE(report.transfer.wire_bytes, none.transfer.wire_bytes) << profile << " " << tokens;
    }
  }
  const auto one = MustGenerate(*pair.decode, Greedy(Prompt(2), 2, "hadamard|uniform|rans"));
  EXPECT_EQ(one.transfer.lossless_fallback_chunks, 1U);
  const std::string metrics = pair.prefill->metrics().Expose();
  EXPECT_THAT(metrics, HasSubstr("kvserve_profile_info{role=\"prefill\","));
  EXPECT_THAT(metrics, HasSubstr("quality_class=\"lossy\",scale_sources=\"hadamard:unit "
                                 "uniform:frame rans:frame\"} 1"));
}

// Case A08: what a quantizer limits is counted where it is encoded.
TEST(Pair, ClampedValuesAreAMetric) {
  PairOptions options;
  options.prefill_engine.large_token = options.decode_engine.large_token = 'Q';
  Pair pair(options);
  auto prompt = Prompt(40);
  std::replace(prompt.begin(), prompt.end(), Token{'Q'}, Token{'R'});
  prompt[20] = 'Q';
  const auto clamped = [&] {
    const std::string metrics = pair.prefill->metrics().Expose();
    const std::string name = "\nkvserve_clamped_values_total{role=\"prefill\"} ";
    return std::stoi(metrics.substr(metrics.find(name) + name.size()));
  };
  MustGenerate(*pair.decode, Greedy(prompt, 2, "fp8|rans"));
  EXPECT_EQ(clamped(), 0);
  MustGenerate(*pair.decode, Greedy(prompt, 2, "fp8:scale=none|rans"));
  EXPECT_EQ(clamped(), 3);  // one key in each of three layers
}

// Otherwise every request would be computed here, for a reason that only its report tells.
TEST(Pair, ADecodeNodeNeedsTheArtefactOfItsProfileAtTheStart) {
  const std::string profile = "affine:source=calibrated|uniform|rans";
  Pair pair;
  DecodeNodeOptions options = pair.options.decode;
  options.prefill = pair.prefill->address();
  options.profile = profile;
  const auto node = DecodeNode::Create(*pair.decode_worker.worker, options);
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(node.error().message, HasSubstr("calibration artefact"));
  const auto pinned = pair.decode->CheckRequest(Greedy(Prompt(10), 5, profile));
  ASSERT_FALSE(pinned);
  EXPECT_EQ(pinned.error().code, ErrorCode::kInvalidArgument);
}

TEST(Pair, NodesRefuseAnArtefactOfAnotherModelAtTheStart) {
  Pair pair;
  CalibrationArtefact::Contents contents;
  contents.geometry = pair.decode_worker.worker->info().geometry;
  contents.geometry.layers.pop_back();
  DecodeNodeOptions decode = pair.options.decode;
  PrefillNodeOptions prefill = pair.options.prefill;
  decode.calibration = prefill.calibration =
      std::make_shared<CalibrationArtefact>(contents, Fingerprint{});
  EXPECT_EQ(DecodeNode::Create(*pair.decode_worker.worker, decode).error().code,
            ErrorCode::kMismatch);
  EXPECT_EQ(PrefillNode::Start(*pair.prefill_worker.worker, prefill).error().code,
            ErrorCode::kMismatch);
}

TEST(Pair, RequestsThatDoNotFitAreRefusedBeforeAnyWork) {
  Pair pair;
  const auto refuse = [&](const GenerateRequest& request) {
    const auto report = pair.decode->Generate(
        request, [] { return true; }, [](std::optional<Token>, std::string_view) { return true; });
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
  };
  refuse(Greedy({}));
  refuse(Greedy({5000}));
  refuse(Greedy(Prompt(1020), 5));
  refuse(Greedy(Prompt(10), 5, "no-such-stage"));
  EXPECT_EQ(pair.prefill_worker.engine->prefilled_tokens(), 0);
}

}  // namespace
}  // namespace kvserve::testing
