// The toy stages together ask of the executor what the hardest known codec does.
#include "pipeline/reference_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "pipeline/plane_order.h"
#include "pipeline/profile_text.h"
#include "pipeline/testing/chunk.h"
#include "pipeline/testing/toy_stages.h"

namespace kvserve {
namespace {

using testing::Difference;
using ::testing::HasSubstr;
using ::testing::Key;
using testing::LayerShape;
using testing::MakeChunk;
using testing::MakeGeometry;
using testing::PlaneValues;
using testing::StridedChunk;
using ::testing::UnorderedElementsAre;

constexpr const char* kHardest = "weigh|scale|predict|classes:step=0.02|context";

Chain MakeChain(std::string_view text) {
  const auto profile = ParseProfileText(text, testing::ToyStages()).value();
  return Chain::Create(profile.stages, testing::ToyStages(), DType::kFloat16, Device::kHost,
                       ProfileOrigin::kCaller)
      .value();
}

FrameContext ContextOf(const ConstKvView& view) {
  FrameContext frame;
  frame.geometry = view.geometry;
  frame.tokens = view.tokens;
  return frame;
}

Result<CodedSections> TryEncode(const Chain& chain, const ConstKvView& view,
                                EncoderMemory* memory = nullptr) {
  CodedSections coded;
  const auto status = EncodePlanes(chain, view, ContextOf(view), coded, nullptr, memory);
  if (!status) return tl::unexpected(status.error());
  return coded;
}

CodedSections Encode(std::string_view profile, const ConstKvView& view) {
  auto coded = TryEncode(MakeChain(profile), view);
  EXPECT_TRUE(coded.has_value()) << coded.error().message;
  return coded ? *coded : CodedSections{};
}

SectionBytes Spans(const CodedSections& coded) {
  return {coded.classes, coded.side, coded.symbols};
}

Status Decode(std::string_view profile, const CodedSections& coded, const KvView& out) {
  return DecodePlanes(MakeChain(profile), Spans(coded), ContextOf(testing::AsConst(out)), out);
}

std::size_t Bytes(const CodedSections& coded) {
  return coded.classes.size() + coded.side.size() + coded.symbols.size();
}

KvBuffer Correlated(DType dtype = DType::kFloat32, TokenRange tokens = {0, 40}) {
  return MakeChunk(MakeGeometry(dtype, std::vector<LayerShape>(6, {2, 16, 16})), tokens);
}

// Largest |value| of a plane: the gain of the toy transform `scale`.
float Gain(const std::vector<float>& values) {
  float gain = 0.0F;
  for (const float value : values) gain = std::max(gain, std::abs(value));
  return gain;
}

TEST(ReferenceExecutor, ClosesThePredictionLoopWithinHalfAStep) {
  const KvBuffer chunk = Correlated();
  KvBuffer decoded = Correlated(DType::kFloat32);
  const auto coded = Encode(kHardest, chunk.view());
  ASSERT_TRUE(Decode(kHardest, coded, decoded.view()));
  const auto before = CodingOrder(chunk.view());
  const auto after = CodingOrder(std::as_const(decoded).view());
  for (std::size_t p = 0; p < before.size(); ++p) {
    const auto x = PlaneValues(before[p].view);
    const auto y = PlaneValues(after[p].view);
    const float factor = before[p].kind == PlaneKind::kKey ? 1.0F : 2.0F;
    const float half_step = 0.01F * Gain(x) * factor;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float bound = i < 32 ? 1e-5F : half_step * 1.001F;  // token 0 is raw
      ASSERT_NEAR(x[i], y[i], bound) << PlaneName(before[p].layer, before[p].kind) << " " << i;
    }
  }
}

TEST(ReferenceExecutor, PredictionFromDecodedPlanesSavesBits) {
  const KvBuffer chunk = Correlated();
  const auto with = Encode(kHardest, chunk.view());
  const auto without = Encode("weigh|scale|classes:step=0.02|context", chunk.view());
  EXPECT_LT(with.symbols.size() * 10, without.symbols.size() * 9);
  EXPECT_EQ(with.classes.size(), without.classes.size());
}

TEST(ReferenceExecutor, CodecContextComesFromEarlierPlanesAndClasses) {
  const KvBuffer chunk = Correlated();
  const std::string stages = "weigh|scale|predict|classes:step=0.02|context";
  EXPECT_NE(Encode(stages, chunk.view()).symbols,
            Encode(stages + ":earlier=false", chunk.view()).symbols);
  // Without weights there is one class fewer, and the codec's parameters follow.
  EXPECT_NE(Encode(stages, chunk.view()).symbols,
            Encode("scale|predict|classes:step=0.02|context", chunk.view()).symbols);
}

TEST(ReferenceExecutor, SelectorsRememberTheFramesOfARequest) {
  const Chain chain = MakeChain(kHardest);
  const auto geometry = MakeGeometry(DType::kFloat16, {{2, 16, 16}});
  const KvBuffer quiet = MakeChunk(geometry, {0, 8});
  const auto alone = TryEncode(chain, quiet.view()).value();
  EncoderMemory memory = NewEncoderMemory(chain);
  const auto first = TryEncode(chain, quiet.view(), &memory).value();
  const auto second = TryEncode(chain, quiet.view(), &memory).value();
  EXPECT_EQ(alone.classes, first.classes);
  EXPECT_NE(first.classes, second.classes);
  EncoderMemory wrong;
  EXPECT_EQ(TryEncode(chain, quiet.view(), &wrong).error().code, ErrorCode::kInvalidArgument);
}

TEST(ReferenceExecutor, NativeChainsKeepEveryBit) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    const auto geometry = MakeGeometry(dtype, {{2, 3, 5}, {1, 64, 0}});
    const KvBuffer chunk = testing::MakeRandomBits(geometry, {0, 33});
    for (const char* profile : {"none", "lossless"}) {
      const auto coded = Encode(profile, chunk.view());
      EXPECT_TRUE(coded.side.empty());
      EXPECT_TRUE(coded.classes.empty());
      const StridedChunk out(chunk.view(), testing::Layout::kTransposed, false);
      ASSERT_TRUE(Decode(profile, coded, out.view()));
      EXPECT_EQ(Difference(chunk.view(), out.const_view()), "");
    }
  }
}

TEST(ReferenceExecutor, BytesDependOnValuesAlone) {
  const KvBuffer chunk = Correlated(DType::kBFloat16);
  const StridedChunk strided(chunk.view());
  for (const char* profile : {kHardest, "none", "scale|scale:factor=4|classes|rans"}) {
    const auto coded = Encode(profile, chunk.view());
    for (const auto& other :
         {Encode(profile, chunk.view()), Encode(profile, strided.const_view())}) {
      EXPECT_EQ(coded.classes, other.classes);
      EXPECT_EQ(coded.side, other.side);
      EXPECT_EQ(coded.symbols, other.symbols);
    }
    KvBuffer contiguous = Correlated(DType::kBFloat16);
    const StridedChunk out(chunk.view(), testing::Layout::kTransposed, false);
    ASSERT_TRUE(Decode(profile, coded, contiguous.view()));
    ASSERT_TRUE(Decode(profile, coded, out.view()));
    EXPECT_EQ(Difference(std::as_const(contiguous).view(), out.const_view()), "");
  }
}

TEST(ReferenceExecutor, LayersMayHoldFewerTokensOrNone) {
  const auto geometry =
      MakeGeometry(DType::kFloat16, {{2, 16, 16}, {2, 16, 16, 8}, {1, 8, 4}, {2, 16, 0}});
  for (const auto& [tokens, total] :
       {std::pair(TokenRange{0, 20}, 20U), std::pair(TokenRange{0, 20}, 25U),
        std::pair(TokenRange{0, 20}, 400U), std::pair(TokenRange{5, 5}, 5U),
        std::pair(TokenRange{7, 8}, 8U)}) {
    const KvBuffer chunk = MakeChunk(geometry, tokens, total);
    for (const char* profile : {kHardest, "none"}) {
      const auto coded = Encode(profile, chunk.view());
      KvBuffer decoded = MakeChunk(geometry, tokens, total, 9);
      ASSERT_TRUE(Decode(profile, coded, decoded.view())) << total;
      if (std::string_view(profile) == "none") {
        EXPECT_EQ(Difference(chunk.view(), std::as_const(decoded).view()), "");
      }
    }
  }
}

TEST(ReferenceExecutor, NamesTheTokenThatIsNotFinite) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      const auto geometry = MakeGeometry(dtype, std::vector<LayerShape>(3, {2, 8, 8}));
      KvBuffer chunk = MakeChunk(geometry, {100, 120});
      testing::SetValue(chunk.view().layers[1].v, 17, 1, 5, value);
      const auto coded = TryEncode(MakeChain(kHardest), std::as_const(chunk).view());
      ASSERT_FALSE(coded.has_value());
      EXPECT_EQ(coded.error().code, ErrorCode::kBadInput);
      EXPECT_THAT(coded.error().message, HasSubstr("layer 1 V token 117 head 1 channel 5"));
      EXPECT_TRUE(TryEncode(MakeChain("lossless"), std::as_const(chunk).view()));
    }
  }
}

TEST(ReferenceExecutor, TimesEachStageByName) {
  const KvBuffer chunk = Correlated();
  const Chain chain = MakeChain(kHardest);
  CodedSections coded;
  StageSeconds seconds;
  ASSERT_TRUE(EncodePlanes(chain, chunk.view(), ContextOf(chunk.view()), coded, &seconds));
  EXPECT_THAT(seconds, UnorderedElementsAre(Key("convert"), Key("weigh"), Key("scale"),
                                            Key("predict"), Key("classes"), Key("context")));
  for (const auto& [name, value] : seconds) EXPECT_GE(value, 0.0) << name;
}

// Cuts and flips in every section give an error or other values, never a crash; a section with a
// byte too many or too few is always refused.
TEST(ReferenceExecutor, RefusesSectionsOfTheWrongLength) {
  const KvBuffer chunk = Correlated(DType::kFloat16, {0, 6});
  const auto coded = Encode(kHardest, chunk.view());
  const auto decode = [&](const CodedSections& bytes) {
    KvBuffer out = Correlated(DType::kFloat16, {0, 6});
    return Decode(kHardest, bytes, out.view());
  };
  ASSERT_TRUE(decode(coded));
  for (const auto member :
       {&CodedSections::classes, &CodedSections::side, &CodedSections::symbols}) {
    for (std::size_t length = 0; length < (coded.*member).size(); ++length) {
      CodedSections cut = coded;
      (cut.*member).resize(length);
      const auto status = decode(cut);
      ASSERT_FALSE(status.has_value()) << length;
      EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
    }
    CodedSections longer = coded;
    (longer.*member).push_back(std::byte{0});
    EXPECT_FALSE(decode(longer).has_value());
    for (std::size_t i = 0; i < (coded.*member).size(); ++i) {
      CodedSections flipped = coded;
      (flipped.*member)[i] ^= std::byte{0x41};
      const auto status = decode(flipped);
      EXPECT_TRUE(status || status.error().code == ErrorCode::kCorruptData);
    }
  }
}

TEST(ReferenceExecutor, RefusesSideBytesThatDecodeToNoNumber) {
  const auto geometry = MakeGeometry(DType::kFloat16, {{1, 4, 0}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 1});
  auto coded = Encode("classes", chunk.view());
  ASSERT_EQ(coded.side.size(), 1U + 16U);  // token 0 is raw
  const float nan = std::nanf("");
  std::memcpy(coded.side.data() + 1, &nan, sizeof(nan));
  KvBuffer out = MakeChunk(geometry, {0, 1});
  const auto status = Decode("classes", coded, out.view());
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(status.error().message, HasSubstr("layer 0 K"));
}

TEST(ReferenceExecutor, EmptySideSectionCostsNothing) {
  const KvBuffer chunk = Correlated(DType::kFloat16, {3, 9});
  EXPECT_TRUE(Encode("classes:step=1000", chunk.view()).side.empty());
  EXPECT_EQ(Bytes(Encode("none", chunk.view())), RawBytes(chunk.view()));
}

}  // namespace
}  // namespace kvserve
