// Frames that are unlike the texts of their artefact are encoded by the fallback profile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/frame_statistics.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr const char* kCalibrated = "affine:source=calibrated|uniform|rans";
constexpr const char* kFallback = "uniform:levels=8|rans";

KvBuffer Chunk(std::uint32_t seed, float scale = 1.0F) {
  KvBuffer chunk = testing::MakeChunk(
      testing::MakeGeometry(DType::kFloat32, {{2, 8, 8}, {2, 8, 8}}), {0, 64}, 64, seed);
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

// Expects frames such as this one.
std::shared_ptr<const CalibrationArtefact> ArtefactFor(const KvBuffer& chunk) {
  const auto sample = testing::SampleArtefact(chunk.geometry());
  Arena arena;
  const auto found = MeasureFrame(chunk.view(), *sample, arena).value();
  CalibrationArtefact::Contents contents = sample->contents();
  contents.frame_expectation.frame_tokens = 64;
  contents.frame_expectation.planes.clear();
  for (const PlaneStatistics& plane : found) {
    EXPECT_TRUE(plane.measured);
    contents.frame_expectation.planes.push_back(
        {static_cast<float>(plane.energy), 0.5F, static_cast<float>(plane.gain), 0.5F});
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
