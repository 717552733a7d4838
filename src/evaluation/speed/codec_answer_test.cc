#include "evaluation/speed/codec_answer.h"

#include <gtest/gtest.h>

#include <utility>

#include "evaluation/speed/codec_speed.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

constexpr const char* kLossy = "hadamard|uniform:k_levels=16,v_levels=8|rans";

KvBuffer Chunk(std::uint32_t seed = 1) {
  return testing::MakeChunk(testing::MakeGeometry(DType::kBFloat16, {{2, 16, 16}, {2, 16, 16}}),
                            {0, 40}, 0, seed);
}

std::vector<std::byte> Frame(const KvBuffer& chunk, const char* profile) {
  std::vector<std::byte> frame;
  EXPECT_TRUE(EncodeFrame(chunk.view(), *ParseProfile(profile), {}, frame));
  return frame;
}

TEST(CodecAnswer, IsWhatThePublicCodecGives) {
  const KvBuffer chunk = Chunk();
  for (const char* profile : {"none", "lossless", kLossy}) {
    const auto answer = ReferenceAnswer(chunk.view(), *ParseProfile(profile), 0);
    ASSERT_TRUE(answer) << profile << ": " << answer.error().message;
    EXPECT_EQ(answer->lossless, profile != kLossy);
    EXPECT_EQ(answer->error.k_rms_relative > 0.0, profile == kLossy);
    const auto frame = Frame(chunk, profile);
    EXPECT_TRUE(CheckEncoded(*answer, frame)) << profile;
    KvBuffer decoded;
    ASSERT_TRUE(DecodeFrame(frame, {}, decoded));
    EXPECT_TRUE(CheckSame(answer->decoded.view(), std::as_const(decoded).view())) << profile;
  }
}

TEST(CodecAnswer, TellsAnotherFrame) {
  const KvBuffer chunk = Chunk();
  const auto answer = ReferenceAnswer(chunk.view(), *ParseProfile(kLossy), 0);
  ASSERT_TRUE(answer);
  const auto status = CheckEncoded(*answer, Frame(Chunk(2), kLossy));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
}

TEST(CodecAnswer, TellsOneBit) {
  const KvBuffer chunk = Chunk();
  KvBuffer other = Chunk();
  *other.view().layers[1].v.at(39, 1, 15) ^= std::byte{1};
  const auto status = CheckSame(chunk.view(), std::as_const(other).view());
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("layer 1 V differs at token 39, head 1"), std::string::npos)
      << status.error().message;
}

// A measurement of a codec that is wrong must not give a figure.
TEST(MeasureCodec, FailsOnAWrongAnswer) {
  const KvBuffer chunk = Chunk();
  const KvBuffer other = Chunk(2);
  const std::vector<ConstKvView> chunks = {chunk.view()};
  const Profile profile = *ParseProfile(kLossy);
  const auto right = ReferenceAnswer(chunk.view(), profile, 0);
  const auto wrong = ReferenceAnswer(other.view(), profile, 0);
  ASSERT_TRUE(right && wrong);
  EXPECT_TRUE(MeasureCodec(chunks, profile, *right, {1, 0.0, 0}));
  const auto speed = MeasureCodec(chunks, profile, *wrong, {1, 0.0, 0});
  ASSERT_FALSE(speed);
  EXPECT_EQ(speed.error().code, ErrorCode::kInternal);
}

TEST(MeasureCodec, CountsAllChunksOnce) {
  const KvBuffer a = Chunk();
  const KvBuffer b = Chunk(2);
  const std::vector<ConstKvView> chunks = {a.view(), b.view()};
  const Profile profile = *ParseProfile("lossless");
  const auto answer = ReferenceAnswer(a.view(), profile, 0);
  ASSERT_TRUE(answer);
  const auto speed = MeasureCodec(chunks, profile, *answer, {2, 0.0, 0});
  ASSERT_TRUE(speed);
  EXPECT_EQ(speed->raw_bytes, 2 * RawBytes(a.view()));
  EXPECT_EQ(speed->wire_bytes, Frame(a, "lossless").size() + Frame(b, "lossless").size());
  EXPECT_EQ(speed->stage_raw_bytes, speed->raw_bytes);
  EXPECT_TRUE(speed->encode_stages.contains("rans"));
  EXPECT_TRUE(speed->decode_stages.contains("frame"));
}

}  // namespace
}  // namespace kvserve
