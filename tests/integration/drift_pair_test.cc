// Chunks unlike the calibration's texts between a prefill node and a decode node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "pair.h"

namespace kvserve::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCalibrated = "affine:source=calibrated|uniform|rans";
constexpr const char* kFallback = "hadamard|uniform:levels=4|bitpack";

// Of the fake engine's model. Nothing is like its texts: they had 2^90 times the energy.
std::shared_ptr<const CalibrationArtefact> StrangeArtefact() {
  const KvGeometry geometry = FakeWorker().worker->info().geometry;
  const auto sample = SampleArtefact(geometry);
  CalibrationArtefact::Contents contents = sample->contents();
  contents.frame_expectation.frame_tokens = 16;
  contents.frame_expectation.planes.assign(2 * geometry.layers.size(), {90.0F, 0.5F, 0.0F, 0.5F});
  return std::make_shared<const CalibrationArtefact>(std::move(contents), sample->fingerprint());
}

TEST(DriftPair, FallenBackChunksArriveAndAreCountedOnBothSides) {
  std::mutex mutex;
  std::vector<DriftedRequest> told;
  PairOptions options;
  options.prefill.calibration = options.decode.calibration = StrangeArtefact();
  options.prefill.fallback = ParseProfile(kFallback).value();
  options.prefill.drift_notice = [&](const DriftedRequest& request) {
    const std::lock_guard lock(mutex);
    told.push_back(request);
  };
  Pair pair(options);
  EXPECT_THAT(pair.prefill->metrics().Expose(),
              Not(HasSubstr("kvserve_drift_fallback_chunks_total{")));
  const auto report = MustGenerate(*pair.decode, Greedy(Prompt(100), 20, kCalibrated));
  EXPECT_EQ(report.source, KvSource::kTransferred) << report.reason;
  EXPECT_EQ(report.transfer.chunks, 7U);
  EXPECT_EQ(report.transfer.drift_fallback_chunks, 7U);
  EXPECT_EQ(report.transfer.lossless_fallback_chunks, 0U);
  EXPECT_THAT(
      pair.prefill->metrics().Expose(),
      HasSubstr("kvserve_drift_fallback_chunks_total{role=\"prefill\",reason=\"energy\"} 7"));
  const std::lock_guard lock(mutex);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].drifted_chunks, 7U);
  EXPECT_EQ(told[0].chunks, 7U);
  EXPECT_EQ(told[0].fallback, ParseProfile(kFallback).value().name);
  EXPECT_THAT(told[0].reason, HasSubstr("energy of whitened values"));
}

// The tokens are those of the fallback, asked for by name, and not of the profile.
TEST(DriftPair, TheFallbackIsWhatIsDecoded) {
  PairOptions options;
  options.prefill.calibration = options.decode.calibration = StrangeArtefact();
  const auto generate = [&](const char* profile) {
    Pair pair(options);
    const auto report = MustGenerate(*pair.decode, Greedy(Prompt(100), 20, profile));
    EXPECT_EQ(report.source, KvSource::kTransferred) << report.reason;
    EXPECT_EQ(report.transfer.drift_fallback_chunks,
              options.prefill.fallback.stages.empty() ? 0U : 7U);
    return report.tokens;
  };
  const auto unguarded = generate(kCalibrated);
  const auto expected = generate(kFallback);
  options.prefill.fallback = ParseProfile(kFallback).value();
  EXPECT_EQ(generate(kCalibrated), expected);
  EXPECT_NE(unguarded, expected);
}

TEST(DriftPair, PrefillNodesRefuseWhatCannotGuard) {
  Pair pair;
  PrefillNodeOptions options = pair.options.prefill;
  options.calibration = StrangeArtefact();
  options.fallback = ParseProfile(kCalibrated).value();
  const auto circular = PrefillNode::Start(*pair.prefill_worker.worker, options);
  ASSERT_FALSE(circular);
  EXPECT_EQ(circular.error().code, ErrorCode::kInvalidArgument);
  options.fallback = ParseProfile(kFallback).value();
  CalibrationArtefact::Contents contents = options.calibration->contents();
  contents.frame_expectation = {};
  options.calibration =
      std::make_shared<const CalibrationArtefact>(std::move(contents), Fingerprint{});
  const auto blind = PrefillNode::Start(*pair.prefill_worker.worker, options);
  ASSERT_FALSE(blind);
  EXPECT_THAT(blind.error().message, HasSubstr("what frames to expect"));
}

}  // namespace
}  // namespace kvserve::testing
