// Frames unlike the calibration's texts cross by the sender's fallback profile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "transfer/testing/transfer_pair.h"

namespace kvserve::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCalibrated = "affine:source=calibrated|uniform|rans";
constexpr const char* kFallback = "hadamard|uniform:levels=32|rans";

// Whose texts nothing is like: 2^90 times the energy.
std::shared_ptr<const CalibrationArtefact> StrangeArtefact(const KvGeometry& geometry) {
  const auto sample = SampleArtefact(geometry);
  CalibrationArtefact::Contents contents = sample->contents();
  contents.frame_expectation.frame_tokens = 32;
  contents.frame_expectation.planes.assign(2 * geometry.layers.size(), {90.0F, 0.5F, 0.0F, 0.5F});
  return std::make_shared<const CalibrationArtefact>(std::move(contents), sample->fingerprint());
}

TransferSetup Guarded() {
  TransferSetup setup = SmallSetup();
  setup.sender.calibration = StrangeArtefact(setup.geometry);
  setup.sender.fallback = ParseProfile(kFallback).value();
  setup.receiver.calibration = setup.sender.calibration;
  return setup;
}

struct Crossed {
  FetchReport fetch;
  OfferReport offer;
  std::vector<std::byte> received;
};

Crossed Cross(TransferSetup setup, const char* profile) {
  TransferPair pair(std::move(setup));
  const auto request = pair.NewRequest("a", 100);
  pair.Begin(request, profile);
  pair.StageAll(request);
  pair.Fetch(pair.FetchOf(request));
  const FetchReport fetch = pair.Await("a");
  return {fetch, pair.AwaitOffer("a"), pair.Received(request)};
}

TEST(DriftTransfer, FallenBackFramesAreCountedAndDecodeWithoutConfiguration) {
  const Crossed guarded = Cross(Guarded(), kCalibrated);
  ASSERT_FALSE(guarded.fetch.error.has_value()) << guarded.fetch.error->message;
  EXPECT_EQ(guarded.offer.drift_fallbacks, guarded.offer.frames);
  EXPECT_EQ(guarded.offer.drift_cause, "energy");
  EXPECT_THAT(guarded.offer.drift_reason, HasSubstr("energy of whitened values"));
  EXPECT_EQ(guarded.offer.lossless_fallbacks, 0U);
  EXPECT_EQ(guarded.fetch.lossless_fallbacks, 0U);
  EXPECT_EQ(guarded.fetch.drift_fallbacks, guarded.fetch.frames);
  EXPECT_EQ(guarded.fetch.profile, ParseProfile(kCalibrated).value().name);
  const Crossed plain = Cross(SmallSetup(), kFallback);
  ASSERT_FALSE(plain.fetch.error.has_value()) << plain.fetch.error->message;
  EXPECT_TRUE(guarded.received == plain.received);
  EXPECT_EQ(plain.offer.drift_fallbacks, 0U);
  EXPECT_TRUE(plain.offer.drift_reason.empty());
}

TEST(DriftTransfer, WithoutAFallbackNothingIsGuarded) {
  TransferSetup setup = Guarded();
  setup.sender.fallback = {};
  const Crossed crossed = Cross(std::move(setup), kCalibrated);
  ASSERT_FALSE(crossed.fetch.error.has_value()) << crossed.fetch.error->message;
  EXPECT_EQ(crossed.offer.drift_fallbacks, 0U);
  const Crossed guarded = Cross(Guarded(), kCalibrated);
  EXPECT_FALSE(crossed.received == guarded.received);
}

TEST(DriftTransfer, FallbacksThatCannotServeAreRefusedAtTheStart) {
  const SampleCache source(SmallSetup().geometry, PagedLayout::kNhd, 16, 8);
  const auto start = [&](const char* fallback) {
    SenderOptions options;
    options.fallback = ParseProfile(fallback).value();
    const auto sender = KvSender::Start(source.cache(), options);
    return sender ? Error{} : sender.error();
  };
  EXPECT_EQ(start(kFallback).message, "");
  const Error calibrated = start(kCalibrated);
  EXPECT_EQ(calibrated.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(calibrated.message, HasSubstr("needs a calibration artefact itself"));
  EXPECT_EQ(start("streamingllm").code, ErrorCode::kUnsupported);
}

// The offer finds out, and not its first frame.
TEST(DriftTransfer, ArtefactsWithoutAnExpectationCannotBeGuarded) {
  TransferSetup setup = Guarded();
  CalibrationArtefact::Contents contents = setup.sender.calibration->contents();
  contents.frame_expectation = {};
  setup.sender.calibration =
      std::make_shared<const CalibrationArtefact>(std::move(contents), Fingerprint{});
  TransferPair pair(std::move(setup));
  const auto begun = pair.sender->Begin("a", {kCalibrated, SomeTokens(40)});
  ASSERT_FALSE(begun.has_value());
  EXPECT_THAT(begun.error().message, HasSubstr("what frames to expect"));
  EXPECT_TRUE(pair.sender->Begin("b", {"lossless", SomeTokens(40)}).has_value());
}

}  // namespace
}  // namespace kvserve::testing
