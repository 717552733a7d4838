// The public encoder and decoder, which run the fast executor, against the reference executor:
// every chain of the stage table, shape, dtype and number of threads. Bytes and values are the
// same, bit for bit, floats included.
#include <gtest/gtest.h>

#include <cctype>

#include "frame/frame.h"
#include "kvserve/codec.h"
#include "pipeline/reference_executor.h"
#include "pipeline/testing/chunk.h"
#include "stages/registry.h"
#include "stages/testing/chains.h"

namespace kvserve {
namespace {

using testing::Difference;
using testing::LayerShape;
using testing::MakeChunk;
using testing::MakeGeometry;

FrameContext ContextOf(const KvGeometry& geometry, TokenRange tokens) {
  FrameContext frame;
  frame.geometry = &geometry;
  frame.tokens = tokens;
  return frame;
}

std::vector<std::byte> SectionOf(const FrameView& frame, SectionKind kind) {
  for (const Section& section : frame.sections) {
    if (section.kind == kind) return {section.bytes.begin(), section.bytes.end()};
  }
  return {};
}

// Head dimensions around the widths of vectors, tiles of one row and of many, windows, one plane.
std::vector<LayerShape> Shapes() {
  return {{3, 64, 64}, {1, 128, 128}, {2, 80, 96}, {1, 576, 0}, {8, 100, 33, 16}, {5, 1024, 7, 3}};
}

class EveryChainOnBothExecutors : public ::testing::TestWithParam<std::string> {
 protected:
  void ExpectSame(FrameEncoder& encoder, FrameDecoder& decoder, const Chain& chain,
                  const ConstKvView& view) {
    CodedSections coded;
    ASSERT_TRUE(EncodePlanes(chain, view, ContextOf(*view.geometry, view.tokens), coded));
    std::vector<std::byte> bytes;
    const auto status = encoder.Encode(view, {}, bytes);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    const FrameView frame = ReadFrame(bytes).value();
    EXPECT_EQ(SectionOf(frame, SectionKind::kClasses), coded.classes);
    EXPECT_EQ(SectionOf(frame, SectionKind::kSide), coded.side);
    EXPECT_EQ(SectionOf(frame, SectionKind::kSymbols), coded.symbols);

    const testing::StridedChunk slow(view, testing::Layout::kTokenGaps, false);
    ASSERT_TRUE(DecodePlanes(chain, {coded.classes, coded.side, coded.symbols},
                             ContextOf(*view.geometry, view.tokens), slow.view()));
    KvBuffer fast;
    const auto length = decoder.Decode(bytes, {}, fast);
    ASSERT_TRUE(length.has_value()) << length.error().message;
    EXPECT_EQ(Difference(slow.const_view(), std::as_const(fast).view()), "");
  }
};

TEST_P(EveryChainOnBothExecutors, GivesTheSameBytesAndValues) {
  const Profile profile = ParseProfile(GetParam()).value();
  const Chain chain = Chain::Create(profile.stages, BuiltinStages(), DType::kFloat16, Device::kHost,
                                    ProfileOrigin::kCaller)
                          .value();
  if (chain.needs_artefact()) GTEST_SKIP() << "tested with its artefact";
  for (const std::uint32_t threads : {1U, 2U, 3U}) {
    FrameEncoder encoder = FrameEncoder::Create(profile, {.threads = threads}).value();
    FrameDecoder decoder = FrameDecoder::Create({.threads = threads}).value();
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
      const KvGeometry geometry = MakeGeometry(dtype, Shapes());
      for (const TokenRange tokens :
           {TokenRange{0, 0}, TokenRange{0, 1}, TokenRange{0, 67}, TokenRange{16, 33}}) {
        SCOPED_TRACE(std::to_string(threads) + " threads, " + std::string(DTypeName(dtype)) +
                     ", tokens to " + std::to_string(tokens.end));
        const KvBuffer chunk = MakeChunk(geometry, tokens);
        ExpectSame(encoder, decoder, chain, chunk.view());
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

// One encoder and one decoder over frames of changing shapes and profiles.
TEST(FrameDecoder, TakesFramesOfManyProfilesInTurn) {
  FrameDecoder decoder = FrameDecoder::Create({.threads = 2}).value();
  const KvGeometry geometry = MakeGeometry(DType::kBFloat16, {{2, 64, 64}, {1, 80, 0}});
  std::vector<std::string> texts = testing::AllChains();
  ASSERT_GT(texts.size(), 10U);  // more than a decoder remembers
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (const std::string& text : texts) {
      const Profile profile = ParseProfile(text).value();
      const KvBuffer chunk = MakeChunk(geometry, {0, 9 + 7 * round});
      std::vector<std::byte> frame;
      if (!EncodeFrame(chunk.view(), profile, {}, frame)) continue;  // needs an artefact
      KvBuffer expected;
      ASSERT_TRUE(DecodeFrame(frame, {}, expected));
      KvBuffer decoded;
      ASSERT_EQ(decoder.Decode(frame, {}, decoded).value(), frame.size());
      EXPECT_EQ(Difference(std::as_const(expected).view(), std::as_const(decoded).view()), "");
    }
  }
}

}  // namespace
}  // namespace kvserve
