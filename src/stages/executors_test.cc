// The public encoder and decoder, which run the fast executor, against the reference executor:
// every chain of the stage table, shape, dtype and number of threads. Bytes and values are the
// same, bit for bit, floats included.
#include <gtest/gtest.h>

#include <cctype>

#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/testing/chunk.h"
#include "stages/testing/chains.h"
#include "stages/testing/reference.h"

namespace kvserve {
namespace {

using testing::Difference;
using testing::LayerShape;
using testing::MakeChunk;
using testing::MakeGeometry;

// Head dimensions around the widths of vectors, tiles of one row and of many, windows, one plane.
// The largest is not for KLT and whitening, whose sample artefact ends before it.
std::vector<LayerShape> Shapes(bool klt) {
  std::vector<LayerShape> shapes = {
      {3, 64, 64}, {1, 128, 128}, {2, 80, 96}, {1, 576, 0}, {6, 100, 33, 16}};
  if (!klt) shapes.push_back({5, 1024, 7, 3});
  return shapes;
}

class EveryChainOnBothExecutors : public ::testing::TestWithParam<std::string> {
 protected:
  static void ExpectSame(FrameEncoder& encoder, FrameDecoder& decoder, const Profile& profile,
                         const ConstKvView& view) {
    CodedSections coded;
    ASSERT_TRUE(testing::EncodeByReference(view, profile, coded));
    std::vector<std::byte> bytes;
    const auto status = encoder.Encode(view, {}, bytes);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    EXPECT_TRUE(testing::HasSections(bytes, coded));
    KvBuffer slow;
    ASSERT_TRUE(testing::DecodeByReference(bytes, slow));
    KvBuffer fast;
    const auto length = decoder.Decode(bytes, {}, fast);
    ASSERT_TRUE(length.has_value()) << length.error().message;
    EXPECT_EQ(Difference(std::as_const(slow).view(), std::as_const(fast).view()), "");
  }
};

TEST_P(EveryChainOnBothExecutors, GivesTheSameBytesAndValues) {
  const Profile profile = ParseProfile(GetParam()).value();
  const bool klt =
      GetParam().find("klt") != std::string::npos || GetParam().find("whiten") != std::string::npos;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    const KvGeometry geometry = MakeGeometry(dtype, Shapes(klt));
    const auto artefact = testing::SampleArtefact(geometry);
    for (const std::uint32_t threads : {1U, 2U, 3U}) {
      const CodecOptions options{.threads = threads, .calibration = artefact};
      FrameEncoder encoder = FrameEncoder::Create(profile, options).value();
      FrameDecoder decoder = FrameDecoder::Create(options).value();
      for (const TokenRange tokens :
           {TokenRange{0, 0}, TokenRange{0, 1}, TokenRange{0, 67}, TokenRange{16, 33}}) {
        SCOPED_TRACE(std::to_string(threads) + " threads, " + std::string(DTypeName(dtype)) +
                     ", tokens to " + std::to_string(tokens.end));
        const KvBuffer chunk = MakeChunk(geometry, tokens);
        ExpectSame(encoder, decoder, profile, chunk.view());
      }
    }
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& chain) {
  std::string name;
  for (const char c : chain.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Table, EveryChainOnBothExecutors,
                         ::testing::ValuesIn(testing::AllChains()), TestName);
INSTANTIATE_TEST_SUITE_P(Calibrated, EveryChainOnBothExecutors,
                         ::testing::Values("affine:source=calibrated|uniform|rans",
                                           "hadamard|uniform|rans:tables=calibrated",
                                           "unrope|klt:k_on=0|uniform|rans",
                                           "lossless|rans:tables=calibrated"),
                         TestName);

// One encoder and one decoder over frames of changing shapes and profiles.
TEST(FrameDecoder, TakesFramesOfManyProfilesInTurn) {
  const KvGeometry geometry = MakeGeometry(DType::kBFloat16, {{2, 64, 64}, {1, 80, 0}});
  const CodecOptions options{.threads = 2, .calibration = testing::SampleArtefact(geometry)};
  FrameDecoder decoder = FrameDecoder::Create(options).value();
  std::vector<std::string> texts = testing::AllChains();
  ASSERT_GT(texts.size(), 10U);  // more than a decoder remembers
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (const std::string& text : texts) {
      const Profile profile = ParseProfile(text).value();
      const KvBuffer chunk = MakeChunk(geometry, {0, 9 + 7 * round});
      std::vector<std::byte> frame;
      ASSERT_TRUE(EncodeFrame(chunk.view(), profile, {}, frame, nullptr, options)) << text;
      KvBuffer expected;
      ASSERT_TRUE(DecodeFrame(frame, {}, expected, nullptr, options));
      KvBuffer decoded;
      ASSERT_EQ(decoder.Decode(frame, {}, decoded).value(), frame.size());
      EXPECT_EQ(Difference(std::as_const(expected).view(), std::as_const(decoded).view()), "");
    }
  }
}

}  // namespace
}  // namespace kvserve
