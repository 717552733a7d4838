// Frames that are unlike the texts of their artefact are encoded by the fallback profile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/frame_statistics.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/chunk.h"
#include "stages/drift_guard.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr const char* kCalibrated = "affine:source=calibrated|uniform|rans";
constexpr const char* kFallback = "uniform:levels=8|rans";

KvBuffer Chunk(std::uint32_t seed, float scale = 1.0F, std::uint32_t begin = 0) {
  KvBuffer chunk =
      testing::MakeChunk(testing::MakeGeometry(DType::kFloat32, {{2, 8, 8}, {2, 8, 8}}),
                         {begin, begin + 64}, begin + 64, seed);
  const auto planes = CodingOrder(chunk.view());
  const auto values = CodingOrder(std::as_const(chunk).view());
  for (std::size_t p = 0; p < planes.size(); ++p) {
    const auto row = testing::PlaneValues(values[p].view);
    for (std::uint32_t i = 0; i < row.size(); ++i) {
      testing::SetValue(planes[p].view, i / 16, i / 8 % 2, i % 8, row[i] * scale);
    }
  }
  return chunk;
}

// Expects frames such as this one, but for a gain that is so much higher.
std::shared_ptr<const CalibrationArtefact> ArtefactFor(const KvBuffer& chunk, float gain = 0.0F) {
  const auto sample = testing::SampleArtefact(chunk.geometry());
  Arena arena;
  const auto found = MeasureFrame(chunk.view(), *sample, arena).value();
  CalibrationArtefact::Contents contents = sample->contents();
  contents.frame_expectation.frame_tokens = 64;
  contents.frame_expectation.planes.clear();
  for (const PlaneStatistics& plane : found) {
    EXPECT_TRUE(plane.measured);
    contents.frame_expectation.planes.push_back(
        {static_cast<float>(plane.energy), 0.5F, static_cast<float>(plane.gain) + gain, 0.5F});
  }
  return std::make_shared<const CalibrationArtefact>(std::move(contents), sample->fingerprint());
}

Result<FrameEncoder> Encoder(const char* profile, const char* fallback,
                             std::shared_ptr<const CalibrationArtefact> artefact) {
  CodecOptions options{.calibration = std::move(artefact)};
  options.fallback = ParseProfile(fallback).value();
  return FrameEncoder::Create(ParseProfile(profile).value(), options);
}

Bytes Encode(FrameEncoder& encoder, const KvBuffer& chunk) {
  Bytes frame;
  const Status encoded = encoder.Encode(chunk.view(), {}, frame);
  EXPECT_TRUE(encoded) << (encoded ? "" : encoded.error().message);
  return frame;
}

TEST(DriftGuard, FramesOfTheKindAreEncodedByTheProfile) {
  const auto artefact = ArtefactFor(Chunk(1));
  FrameEncoder guarded = Encoder(kCalibrated, kFallback, artefact).value();
  FrameEncoder plain =
      FrameEncoder::Create(ParseProfile(kCalibrated).value(), {.calibration = artefact}).value();
  EXPECT_EQ(Encode(guarded, Chunk(2)), Encode(plain, Chunk(2)));
  EXPECT_FALSE(guarded.drift().fell_back);
  EXPECT_TRUE(guarded.drift().reason.empty());
  EXPECT_GT(guarded.drift().energy, 0.0);
  EXPECT_LT(guarded.drift().energy, 2.0);
  EXPECT_EQ(plain.drift().energy, 0.0);
}

TEST(DriftGuard, OthersByTheFallbackWithoutTheArtefact) {
  FrameEncoder guarded = Encoder(kCalibrated, kFallback, ArtefactFor(Chunk(1))).value();
  const KvBuffer loud = Chunk(2, 16.0F);
  const Bytes frame = Encode(guarded, loud);
  EXPECT_TRUE(guarded.drift().fell_back);
  EXPECT_THAT(guarded.drift().reason, HasSubstr("energy of whitened values"));
  Bytes expected;
  ASSERT_TRUE(EncodeFrame(loud.view(), ParseProfile(kFallback).value(), {}, expected));
  EXPECT_EQ(frame, expected);
  KvBuffer decoded;
  EXPECT_TRUE(DecodeFrame(frame, {}, decoded));
  // The next frame is judged anew.
  Encode(guarded, Chunk(3));
  EXPECT_FALSE(guarded.drift().fell_back);
}

// Texts that nothing was trained on are compared with more narrowly.
TEST(DriftGuard, BoundsAreNarrowerWhereTheKindsToBeServedAreKnown) {
  const auto wide = ArtefactFor(Chunk(1), 0.6F);
  CalibrationArtefact::Contents contents = wide->contents();
  contents.frame_expectation.in_kind = true;
  const auto narrow = std::make_shared<const CalibrationArtefact>(contents, wide->fingerprint());
  FrameEncoder of_kind = Encoder(kCalibrated, kFallback, narrow).value();
  FrameEncoder of_training = Encoder(kCalibrated, kFallback, wide).value();
  Encode(of_kind, Chunk(1));
  Encode(of_training, Chunk(1));
  EXPECT_EQ(of_kind.drift().cause, "keys");
  EXPECT_EQ(of_training.drift().cause, "");
}

// Of a frame that took so many times the expected bits.
FrameDrift Judged(const CalibrationArtefact& artefact, const KvBuffer& chunk, double times,
                  std::uint32_t prompt_tokens) {
  const Profile profile = ParseProfile("whiten|predict|steps|contexts").value();
  const double bits = artefact.code_tables()->points.front().bits_per_value;
  EXPECT_EQ(artefact.code_tables()->points.size(), 1U);
  const auto bytes = static_cast<std::uint64_t>(times * bits * 64 * 64 / 8);  // 64 values a token
  Arena arena;
  return DriftGuard::Create(profile, artefact)
      .value()
      .Judge(chunk.view(), prompt_tokens, bytes, nullptr, arena)
      .value();
}

TEST(DriftGuard, LongCodesAreLongerNearThePromptsEnd) {
  const auto sample = ArtefactFor(Chunk(1));
  CalibrationArtefact::Contents contents = sample->contents();
  contents.code_tables->points.resize(1);
  contents.code_tables->points[0].bits_per_value = 2.0F;
  const CalibrationArtefact artefact(std::move(contents), sample->fingerprint());
  EXPECT_EQ(Judged(artefact, Chunk(1), 1.1, 1000).cause, "");
  EXPECT_NEAR(Judged(artefact, Chunk(1), 1.1, 1000).code_length_ratio, 1.1, 0.01);
  EXPECT_EQ(Judged(artefact, Chunk(1), 1.3, 1000).cause, "code_length");
  EXPECT_EQ(Judged(artefact, Chunk(1), 1.3, 64 + 511).cause, "");
  EXPECT_EQ(Judged(artefact, Chunk(1), 1.3, 0).cause, "");  // this may be the end
  EXPECT_EQ(Judged(artefact, Chunk(1), 2.3, 0).cause, "code_length");
}

TEST(DriftGuard, KeysThatPredictionServesBadly) {
  FrameEncoder near = Encoder(kCalibrated, kFallback, ArtefactFor(Chunk(1), 1.0F)).value();
  Encode(near, Chunk(1));
  EXPECT_NEAR(near.drift().key_gain_loss, 2.0, 1e-3);
  EXPECT_NEAR(near.drift().key_residual, 1.0 / std::hypot(0.5, 0.5), 1e-3);
  EXPECT_EQ(near.drift().cause, "");
  FrameEncoder beyond = Encoder(kCalibrated, kFallback, ArtefactFor(Chunk(1), 1.6F)).value();
  Encode(beyond, Chunk(1));
  EXPECT_EQ(beyond.drift().cause, "keys");
  EXPECT_THAT(beyond.drift().reason, HasSubstr("what prediction leaves of keys"));
}

// Two octaves are four deviations: too far for one frame, and not in the mean over two.
TEST(DriftGuard, FramesOfARequestAreJudgedTogether) {
  FrameEncoder encoder = Encoder(kCalibrated, kFallback, ArtefactFor(Chunk(1))).value();
  RequestMemory request = encoder.NewRequest();
  EXPECT_TRUE(request.looks_back());
  const auto fell_back = [&](std::uint32_t begin, float scale, bool alone) {
    const KvBuffer chunk = Chunk(1, scale, begin);
    EncodeOptions options;
    if (!alone) options.request = &request;
    Bytes frame;
    EXPECT_TRUE(encoder.Encode(chunk.view(), options, frame));
    return encoder.drift().fell_back;
  };
  EXPECT_TRUE(fell_back(64, 2.0F, true));
  EXPECT_FALSE(fell_back(0, 1.0F, false));
  EXPECT_FALSE(fell_back(64, 2.0F, false));
  EXPECT_FALSE(fell_back(64, 2.0F, false));  // the same frame again
  EXPECT_GT(encoder.drift().energy, 1.5);    // the mean of two, not of three
  EXPECT_TRUE(fell_back(0, 2.0F, false));    // and from the start again
  FrameEncoder unguarded = FrameEncoder::Create(ParseProfile("uniform|rans").value()).value();
  EXPECT_FALSE(unguarded.NewRequest().looks_back());
}

// A memory may be handed to encoders of models with fewer layers.
TEST(DriftGuard, PlanesThatNotAllFramesHaveDoNotCount) {
  const auto plane = [](double energy) {
    PlaneDistance distance;
    distance.compared = true;
    distance.energy = energy;
    return distance;
  };
  DriftMemory memory;
  memory.Add({.tokens = {0, 4}, .planes = {plane(1), plane(9)}});
  memory.Add({.tokens = {4, 8}, .planes = {plane(3)}});
  Arena arena;
  EXPECT_NEAR(memory.Drift(arena).energy, 2, 1e-9);
}

TEST(DriftGuard, NeedsAnExpectationAndAFallbackWithoutArtefact) {
  const auto artefact = ArtefactFor(Chunk(1));
  CalibrationArtefact::Contents contents = artefact->contents();
  contents.frame_expectation = {};
  const auto lacking = Encoder(
      kCalibrated, kFallback,
      std::make_shared<const CalibrationArtefact>(std::move(contents), artefact->fingerprint()));
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(lacking.error().message, HasSubstr("what frames to expect"));
  const auto circular = Encoder(kCalibrated, kCalibrated, artefact);
  ASSERT_FALSE(circular);
  EXPECT_EQ(circular.error().code, ErrorCode::kInvalidArgument);
}

TEST(DriftGuard, ProfilesWithoutArtefactNeedNone) {
  FrameEncoder encoder = Encoder("uniform|rans", kFallback, nullptr).value();
  Encode(encoder, Chunk(2, 16.0F));
  EXPECT_FALSE(encoder.drift().fell_back);
}

}  // namespace
}  // namespace kvserve
