// Case A25: models whose layers have one plane (MLA): what they take, and what is refused and why.
#include "stages/single_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvserve/codec.h"
#include "pipeline/testing/chunk.h"
#include "stages/testing/chains.h"
#include "stages/testing/frames.h"

namespace kvserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

KvGeometry Latent(DType dtype) {
  return testing::MakeGeometry(dtype, {{1, 576, 0}, {1, 576, 0}});
}

TEST(SinglePlane, EveryChainTakesALatentOf576) {
  const KvBuffer chunk = testing::MakeChunk(Latent(DType::kBFloat16), {0, 20});
  for (const std::string& text : testing::AllChains()) {
    const Profile profile = ParseProfile(text).value();
    std::vector<std::byte> frame;
    const auto status = testing::EncodeSample(chunk.view(), profile, frame);
    ASSERT_TRUE(status.has_value()) << text << ": " << status.error().message;
    KvBuffer decoded;
    const auto length = testing::DecodeSample(frame, decoded);
    ASSERT_TRUE(length.has_value()) << text << ": " << length.error().message;
    EXPECT_EQ(decoded.geometry(), chunk.geometry()) << text;
    if (testing::IsLossless(profile)) {
      EXPECT_EQ(testing::Difference(chunk.view(), std::as_const(decoded).view()), "") << text;
    }
  }
}

TEST(SinglePlane, RefusesSettingsOfVThatDifferFromThoseOfK) {
  const KvBuffer chunk = testing::MakeChunk(Latent(DType::kFloat16), {0, 9});
  std::vector<std::byte> frame;
  for (const char* text : {"uniform:k_levels=16,v_levels=4|none", "uniform:v_axis=group|rans",
                           "hadamard:v_on=0|uniform|none"}) {
    const auto status = EncodeFrame(chunk.view(), ParseProfile(text).value(), {}, frame);
    ASSERT_FALSE(status.has_value()) << text;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, AllOf(HasSubstr("v_"), HasSubstr("single-plane"))) << text;
    EXPECT_TRUE(frame.empty());
  }
}

TEST(SinglePlane, TakesSettingsOfBothAndOfKAlone) {
  const KvBuffer chunk = testing::MakeChunk(Latent(DType::kFloat16), {0, 9});
  for (const char* text : {"uniform:levels=4|none", "uniform:k_levels=4|none", "uniform|rans"}) {
    std::vector<std::byte> frame;
    EXPECT_TRUE(EncodeFrame(chunk.view(), ParseProfile(text).value(), {}, frame)) << text;
  }
}

// A model with V planes in some layers uses the settings of V.
TEST(SinglePlane, IsAllOrNothing) {
  const KvGeometry mixed = testing::MakeGeometry(DType::kFloat16, {{1, 64, 0}, {1, 64, 64}});
  const Profile profile = ParseProfile("uniform:k_levels=16,v_levels=4|none").value();
  EXPECT_TRUE(CheckSplitSettings(profile, mixed));
  EXPECT_FALSE(CheckSplitSettings(profile, Latent(DType::kFloat16)));
}

}  // namespace
}  // namespace kvserve
