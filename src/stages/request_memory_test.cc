// Frames of one request, encoded with what is remembered of it.
#include <gtest/gtest.h>

#include <utility>

#include "base/token_slice.h"
#include "kvserve/codec.h"
#include "pipeline/testing/chunk.h"
#include "stages/testing/frames.h"

namespace kvserve {
namespace {

using Bytes = std::vector<std::byte>;

constexpr const char* kLooksBack = "expected:keys=seen,mean=offline,recency=1,beta=1|mixed|rans";

class RequestMemoryTest : public ::testing::Test {
 protected:
  [[nodiscard]] FrameEncoder Encoder(const char* profile = kLooksBack) const {
    return testing::MakeSampleEncoder(ParseProfile(profile).value(), chunk_.geometry()).value();
  }
  // The frame of some tokens.
  [[nodiscard]] Result<Bytes> Encode(FrameEncoder& encoder, TokenRange tokens,
                                     RequestMemory* request) const {
    Bytes frame;
    EncodeOptions options{.prompt_tokens = 96};
    options.request = request;
    auto status = encoder.Encode(SliceTokens(chunk_.view(), tokens), options, frame);
    if (!status) return tl::unexpected(status.error());
    return frame;
  }

  const KvBuffer chunk_ = testing::MakeChunk(
      testing::MakeGeometry(DType::kFloat16, {{2, 16, 16}, {1, 16, 8}}), {0, 96});
};

TEST_F(RequestMemoryTest, LaterFramesDependOnEarlierOnes) {
  FrameEncoder encoder = Encoder();
  RequestMemory request = encoder.NewRequest();
  EXPECT_TRUE(request.looks_back());
  EXPECT_EQ(Encode(encoder, {0, 48}, &request).value(), Encode(encoder, {0, 48}, nullptr).value());
  const Bytes second = Encode(encoder, {48, 96}, &request).value();
  EXPECT_NE(second, Encode(encoder, {48, 96}, nullptr).value());
  KvBuffer decoded;
  EXPECT_TRUE(testing::DecodeSample(second, decoded));
}

TEST_F(RequestMemoryTest, RequestsAndEncodersOfAProfileAreInterchangeable) {
  FrameEncoder one = Encoder();
  FrameEncoder other = Encoder();
  RequestMemory first = one.NewRequest();
  RequestMemory second = one.NewRequest();
  for (const TokenRange tokens : {TokenRange{0, 32}, TokenRange{32, 64}, TokenRange{64, 96}}) {
    const Bytes frame = Encode(one, tokens, &first).value();
    EXPECT_EQ(Encode(tokens.begin == 32 ? other : one, tokens, &second).value(), frame);
  }
}

TEST_F(RequestMemoryTest, ProfilesThatDoNotLookBackHaveNone) {
  FrameEncoder encoder = Encoder("window|mixed|rans");
  RequestMemory request = encoder.NewRequest();
  EXPECT_FALSE(request.looks_back());
  const Bytes alone = Encode(encoder, {32, 64}, nullptr).value();
  EXPECT_EQ(Encode(encoder, {32, 64}, &request).value(), alone);
}

TEST_F(RequestMemoryTest, RefusesThatOfAnotherProfileOrMovedFrom) {
  FrameEncoder encoder = Encoder();
  FrameEncoder window = Encoder("window|mixed|rans");
  RequestMemory request = window.NewRequest();
  EXPECT_EQ(Encode(encoder, {0, 8}, &request).error().code, ErrorCode::kInvalidArgument);
  RequestMemory own = encoder.NewRequest();
  const RequestMemory taken = std::move(own);
  // NOLINTNEXTLINE(bugprone-use-after-move): what such a use gives is the point
  EXPECT_EQ(Encode(encoder, {0, 8}, &own).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(taken.looks_back());
}

}  // namespace
}  // namespace kvserve
