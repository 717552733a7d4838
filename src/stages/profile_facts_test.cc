// Case A11: nobody has to believe that calibrated scales are in force. Case A37: the quality class
// is shown, and the class lossless is bit-exact.
#include "stages/profile_facts.h"

#include <gtest/gtest.h>

#include "kvserve/codec.h"
#include "pipeline/testing/chunk.h"
#include "stages/testing/chains.h"
#include "stages/testing/frames.h"

namespace kvserve {
namespace {

ProfileFacts FactsOfText(const std::string& text) {
  const auto facts =
      FactsOf(ParseProfile(text).value().stages, DType::kBFloat16, ProfileOrigin::kCaller);
  EXPECT_TRUE(facts) << facts.error().message;
  return facts ? *facts : ProfileFacts{};
}

std::string SourcesOf(const std::string& text) {
  return ScaleSourcesText(FactsOfText(text));
}

TEST(ProfileFacts, SayWhereScalesComeFrom) {
  EXPECT_EQ(SourcesOf("hadamard|uniform:k_levels=16|bitpack"),
            "hadamard:unit uniform:frame bitpack:unit");
  EXPECT_EQ(SourcesOf("uniform:range=fixed|bitpack"), "uniform:profile bitpack:unit");
  EXPECT_EQ(SourcesOf("uniform:k_range=fixed|bitpack"), "uniform:profile/frame bitpack:unit");
  EXPECT_EQ(SourcesOf("affine|uniform|zstd"), "affine:frame uniform:frame zstd:unit");
  EXPECT_EQ(SourcesOf("affine:source=calibrated|uniform|zstd"),
            "affine:calibrated uniform:frame zstd:unit");
  EXPECT_EQ(SourcesOf("affine:source=calibrated,v_center=0|uniform|zstd"),
            "affine:calibrated/unit uniform:frame zstd:unit");
  EXPECT_EQ(SourcesOf("uniform|rans"), "uniform:frame rans:frame");
  EXPECT_EQ(SourcesOf("uniform|rans:tables=calibrated"), "uniform:frame rans:calibrated");
  EXPECT_EQ(SourcesOf("none"), "none:unit none:unit");
}

TEST(ProfileFacts, CalibratedStagesNeedTheArtefact) {
  EXPECT_TRUE(FactsOfText("affine:source=calibrated|uniform").needs_artefact);
  EXPECT_FALSE(FactsOfText("affine|uniform|rans").needs_artefact);
  // Nothing that needs an artefact claims to work without one, and the other way round.
  for (const auto& chains : {testing::AllChains(), testing::AllSettings()}) {
    for (const auto& text : chains) {
      const ProfileFacts facts = FactsOfText(text);
      bool calibrated = false;
      for (const StageFacts& stage : facts.stages) {
        calibrated = calibrated || stage.k_scales == ScaleSource::kCalibrated ||
                     stage.v_scales == ScaleSource::kCalibrated;
      }
      EXPECT_LE(calibrated, facts.needs_artefact) << text;
    }
  }
}

TEST(ProfileFacts, QualityClassFollowsFromTheStages) {
  for (const char* text : {"none", "lossless", "none|zstd", "lossless|bitpack"}) {
    EXPECT_EQ(QualityClassOf(text), "lossless") << text;
  }
  for (const char* text : {"uniform", "hadamard|uniform:levels=256|rans", "uniform|none"}) {
    EXPECT_EQ(QualityClassOf(text), "lossy") << text;
  }
  EXPECT_EQ(QualityClassOf("no-such-stage"), "unknown");
  EXPECT_FALSE(IsLossless({{0x7FFF, 1, {}}}));  // a stage of another build may do anything
  for (const auto& text : testing::AllChains()) {
    const Profile profile = ParseProfile(text).value();
    EXPECT_EQ(IsLossless(profile.stages), FactsOfText(text).lossless) << text;
  }
}

TEST(ProfileFacts, TheClassLosslessIsBitExact) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    const auto geometry = testing::MakeGeometry(
        dtype, {{.heads = 2, .k_dim = 16, .v_dim = 8}, {.heads = 1, .k_dim = 24, .v_dim = 24}});
    const KvBuffer chunk = testing::MakeRandomBits(geometry, {0, 33});
    for (const auto& text : testing::AllChains()) {
      if (QualityClassOf(text) != "lossless") continue;
      std::vector<std::byte> frame;
      ASSERT_TRUE(testing::EncodeSample(chunk.view(), ParseProfile(text).value(), frame)) << text;
      KvBuffer decoded;
      ASSERT_TRUE(testing::DecodeSample(frame, decoded)) << text;
      EXPECT_EQ(testing::Difference(chunk.view(), std::as_const(decoded).view()), "") << text;
    }
  }
}

}  // namespace
}  // namespace kvserve
