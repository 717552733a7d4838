// Frames that leave tokens out, through the public codec: what the decoder says of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kvserve/codec.h"
#include "kvserve/stages.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/chunk.h"
#include "stages/profile_facts.h"

namespace kvserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kWindow = "window:sinks=4,recent=10,outside=0|hadamard|mixed|rans";

class DroppedFrames : public ::testing::Test {
 protected:
  DroppedFrames()
      : geometry_(testing::MakeGeometry(DType::kFloat16, {{2, 32, 32}, {2, 32, 32, 24}})),
        decoder_(FrameDecoder::Create().value()) {}

  std::vector<std::byte> Encoded(const std::string& profile, TokenRange tokens,
                                 std::uint32_t prompt) {
    const KvBuffer chunk = testing::MakeChunk(geometry_, tokens, prompt);
    std::vector<std::byte> frame;
    const auto status =
        EncodeFrame(chunk.view(), ParseProfile(profile).value(), {.prompt_tokens = prompt}, frame);
    EXPECT_TRUE(status) << (status ? "" : status.error().message);
    return frame;
  }
  void Decode(const std::vector<std::byte>& frame) {
    const auto length = decoder_.Decode(frame, {}, decoded_);
    EXPECT_TRUE(length) << (length ? "" : length.error().message);
  }

  KvGeometry geometry_;
  FrameDecoder decoder_;
  KvBuffer decoded_;
};

TEST_F(DroppedFrames, TheDecoderSaysWhichTokensAreGone) {
  Decode(Encoded(kWindow, {0, 64}, 64));
  const auto dropped = decoder_.dropped();
  ASSERT_EQ(dropped.size(), 64U);
  for (std::size_t t = 0; t < 64; ++t) EXPECT_EQ(dropped[t] != 0, t >= 4 && t < 54) << t;
  EXPECT_FALSE(decoder_.partly_dropped());
  for (const auto& plane : CodingOrder(std::as_const(decoded_).view())) {
    const auto values = testing::PlaneValues(plane.view);
    for (std::uint32_t t = plane.tokens.begin; t < plane.tokens.end; ++t) {
      const auto row = std::span(values).subspan((t - plane.tokens.begin) * 64, 64);
      const bool zero = std::ranges::all_of(row, [](float value) { return value == 0.0F; });
      EXPECT_EQ(zero, dropped[t] != 0) << PlaneName(plane.layer, plane.kind) << " token " << t;
    }
  }
}

TEST_F(DroppedFrames, TheNextFrameStartsAnew) {
  Decode(Encoded(kWindow, {0, 64}, 64));
  EXPECT_FALSE(decoder_.dropped().empty());
  Decode(Encoded("hadamard|mixed|rans", {0, 64}, 64));
  EXPECT_THAT(decoder_.dropped(), IsEmpty());
  Decode(Encoded(kWindow, {0, 64}, 64));
  EXPECT_FALSE(decoder_.dropped().empty());
  KvBuffer out;
  EXPECT_FALSE(decoder_.Decode({}, {}, out));
  EXPECT_THAT(decoder_.dropped(), IsEmpty());
}

TEST_F(DroppedFrames, AFrameInTheMiddleMayDropAllOfItsTokens) {
  const auto frame = Encoded(kWindow, {64, 128}, 400);
  Decode(frame);
  EXPECT_EQ(std::ranges::count(decoder_.dropped(), 1), 64);
  EXPECT_LT(frame.size(), 600U);
}

// Sent at lower precision, nothing is gone, and it takes more bytes than dropping, fewer than
// sending all alike.
TEST_F(DroppedFrames, ThinningKeepsEveryToken) {
  const auto thinned =
      Encoded("window:sinks=4,recent=10,outside=0.0625|hadamard|mixed|rans", {0, 64}, 64);
  Decode(thinned);
  EXPECT_THAT(decoder_.dropped(), IsEmpty());
  EXPECT_FALSE(decoder_.partly_dropped());
  EXPECT_GT(thinned.size(), Encoded(kWindow, {0, 64}, 64).size());
  EXPECT_LT(thinned.size(), Encoded("hadamard|mixed|rans", {0, 64}, 64).size());
}

TEST_F(DroppedFrames, ProfilesSayThatTheyMayDrop) {
  EXPECT_EQ(ProfileMayDrop(ParseProfile(kWindow).value()), "window");
  EXPECT_EQ(ProfileMayDrop(ParseProfile("window:outside=0.5|mixed|rans").value()), "");
  EXPECT_EQ(ProfileMayDrop(ParseProfile("uniform|rans").value()), "");
  const auto facts =
      FactsOf(ParseProfile(kWindow)->stages, DType::kFloat16, ProfileOrigin::kCaller);
  const auto refused = CheckKeepsTokens(facts.value());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("'window'"), HasSubstr("outside")));
}

TEST_F(DroppedFrames, ProfilesThatNeedQueriesDoNotEncodeWithoutThem) {
  const KvBuffer chunk = testing::MakeChunk(geometry_, {0, 64});
  std::vector<std::byte> frame;
  const auto status =
      EncodeFrame(chunk.view(), ParseProfile("attention|mixed|rans").value(), {}, frame);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr("'attention'"));
}

}  // namespace
}  // namespace kvserve
