// The chain whiten | predict | steps, whole: frames of every kind by both executors, how far off
// they are, and what a decoder says of bytes that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/isa/isa_testing.h"
#include "kernels/quantize/token_steps.h"
#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/chain.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/chunk.h"
#include "pipeline/token_classes.h"
#include "stages/registry.h"
#include "stages/testing/weighed.h"

namespace kvserve {
namespace {

using testing::CodeWeighed;
using testing::Executor;
using ::testing::HasSubstr;
using testing::LayerShape;
using testing::MakeChunk;
using testing::MakeGeometry;
using testing::WeighedFrame;

constexpr const char* kChain = "given:octaves=3|unrope|whiten|predict|steps|rans";

KvGeometry RopedGeometry(DType dtype, const std::vector<LayerShape>& shapes) {
  KvGeometry geometry = MakeGeometry(dtype, shapes);
  for (LayerGeometry& layer : geometry.layers) {
    layer.rope_style = RopeStyle::kHalves;
    layer.rope_theta = 1e4F;
  }
  return geometry;
}

// Joint groups and groups of heads, windows, one plane, odd columns.
std::vector<LayerShape> Shapes() {
  return {{3, 64, 64}, {2, 80, 96}, {1, 33, 33}, {1, 160, 0}, {6, 100, 33, 16}, {2, 16, 16, 1}};
}

// CodeWeighed compares the executors.
TEST(TransformCoding, BothExecutorsGiveTheSameFrames) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    const KvGeometry geometry = RopedGeometry(dtype, Shapes());
    for (const char* chain :
         {kChain, "given:octaves=9,drop=0.3|unrope|whiten|predict|steps|none",
          "unrope|whiten:step=0.01|predict|steps|zstd", "unrope|whiten|steps:raw_first=0|rans",
          "given|unrope|whiten:k_step=2,v_on=0|predict:k_on=0|steps|bitpack",
          "unrope|whiten|predict|hadamard|steps", "given|steps|rans",
          "unrope|whiten|predict|predict|steps"}) {
      for (const TokenRange tokens : {TokenRange{0, 0}, TokenRange{0, 1}, TokenRange{0, 67},
                                      TokenRange{16, 33}, TokenRange{100, 230}}) {
        for (const unsigned threads : {1U, 3U}) {
          SCOPED_TRACE(std::string(chain) + ", tokens to " + std::to_string(tokens.end) + ", " +
                       std::to_string(threads) + " threads");
          const KvBuffer chunk = MakeChunk(geometry, tokens);
          (void)CodeWeighed(chain, chunk.view(), threads);
        }
      }
    }
  }
}

// Weights for components say nothing of other values; frames that were made so decode.
TEST(TransformCoding, PredictionStandsBehindWhitening) {
  for (const char* text : {"predict|steps", "unrope|predict|whiten|steps",
                           "unrope|whiten:on=0|predict:v_on=0|steps"}) {
    const auto profile = ParseProfile(text).value();
    const auto create = [&](ProfileOrigin origin) {
      return Chain::Create(profile.stages, BuiltinStages(), DType::kFloat16, Device::kHost, origin);
    };
    const auto refused = create(ProfileOrigin::kCaller);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("put 'whiten' before it"), std::string::npos)
        << refused.error().message;
    EXPECT_TRUE(create(ProfileOrigin::kFrame)) << text;
  }
  for (const char* text : {"predict:on=0|steps", "whiten:k_on=0|predict|steps"}) {
    EXPECT_TRUE(Chain::Create(ParseProfile(text)->stages, BuiltinStages(), DType::kFloat16,
                              Device::kHost, ProfileOrigin::kCaller))
        << text;
  }
}

TEST(TransformCoding, EveryTargetGivesTheSameBytes) {
  const KvBuffer chunk = MakeChunk(RopedGeometry(DType::kBFloat16, Shapes()), {0, 90});
  const WeighedFrame expected = CodeWeighed(kChain, chunk.view());
  ForEachIsa([&] {
    const WeighedFrame frame = CodeWeighed(kChain, chunk.view(), 2);
    EXPECT_EQ(frame.classes, expected.classes);
    EXPECT_EQ(frame.side, expected.side);
    EXPECT_EQ(frame.symbols, expected.symbols);
  });
}

// The components of the error, in steps, are within half of what the token's class makes of one,
// although planes were predicted from decoded ones.
TEST(TransformCoding, ErrorsAreWithinHalfAStepOfTheTokensClass) {
  constexpr float kStep = 0.5F;
  KvGeometry geometry = MakeGeometry(DType::kFloat32, {{2, 16, 24}, {2, 16, 24}, {1, 40, 0}});
  for (LayerGeometry& layer : geometry.layers) {
    layer.rope_style = RopeStyle::kNone;
    layer.rope_theta = 0;
  }
  const KvBuffer chunk = MakeChunk(geometry, {0, 80});
  const auto artefact = testing::SampleArtefact(geometry);
  const WeighedFrame frame =
      CodeWeighed("given:octaves=4,drop=0.1|unrope|whiten:step=0.5|predict|steps", chunk.view());
  const auto before = CodingOrder(chunk.view());
  const auto after = CodingOrder(std::as_const(frame.decoded).view());
  std::size_t farther = 0;
  for (std::size_t p = 0; p < before.size(); ++p) {
    const auto x = testing::PlaneValues(before[p].view);
    const auto y = testing::PlaneValues(after[p].view);
    const auto forward = artefact->whitening_forward(before[p].layer, before[p].kind).value();
    const std::size_t group = artefact->whitening(before[p].layer, before[p].kind)->columns;
    const std::size_t columns = std::size_t{before[p].view.heads} * before[p].view.dim;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / columns;
      if (row > 0 && frame.weights[p][row] == 0.0F) {
        EXPECT_EQ(y[i], 0.0F);
        continue;
      }
      const std::size_t first = i % columns / group * group;
      double error = 0;
      for (std::size_t c = 0; c < group; ++c) {
        const std::size_t at = row * columns + first + c;
        error += (double{x[at]} - y[at]) * forward[(first + c) * group + i % columns - first];
      }
      const double step = row == 0 ? 1.0 / 128 : TokenStep(TokenClassOf(frame.weights[p][row]));
      ASSERT_LE(std::fabs(error), kStep * step * 0.51) << p << " row " << row;
      if (std::fabs(error) > kStep * step * 0.4) ++farther;
    }
  }
  EXPECT_GT(farther, 100U);
}

// Tokens that a header announces and no plane holds: nothing is made for them.
TEST(TransformCoding, TokensThatNoPlaneHoldsCostNothing) {
  const KvGeometry geometry = RopedGeometry(DType::kFloat16, {{1, 8, 8, 16}, {1, 8, 8, 16}});
  const KvBuffer chunk = MakeChunk(geometry, {0, (1U << 24) - 4}, 1U << 24);
  const WeighedFrame frame = CodeWeighed("unrope|whiten|predict|steps", chunk.view(), 2);
  EXPECT_EQ(frame.symbols.size(), 4 * 12 * 8U);
}

// Prediction helps where planes resemble the ones before.
TEST(TransformCoding, PredictionShrinksResemblingPlanes) {
  const KvGeometry geometry =
      MakeGeometry(DType::kFloat32, {{2, 16, 16}, {2, 16, 16}, {2, 16, 16}, {2, 16, 16}});
  KvBuffer chunk = MakeChunk(geometry, {64, 264});
  const auto planes = CodingOrder(chunk.view());
  const auto first = testing::PlaneValues(testing::AsConst(chunk.view()).layers[0].k);
  for (const auto& plane : planes) {
    auto* const values = reinterpret_cast<float*>(plane.view.data);
    std::copy(first.begin(), first.end(), values);
  }
  const auto size = [&](const char* chain) {
    return CodeWeighed(chain, std::as_const(chunk).view()).symbols.size();
  };
  EXPECT_NE(size("unrope|whiten|predict|steps|rans"), size("unrope|whiten|steps|rans"));
}

// What an encoder may see: components out of reach of 255 codes come back as they were.
TEST(TransformCoding, LargeComponentsEscape) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat32, {{1, 8, 8}});
  KvBuffer chunk = MakeChunk(geometry, {0, 12});
  for (const auto& plane : CodingOrder(chunk.view())) {
    auto* const values = reinterpret_cast<float*>(plane.view.data);
    for (std::size_t i = 0; i < plane.view.values(); i += 5) values[i] *= 1e6F;
  }
  const WeighedFrame frame = CodeWeighed("steps", std::as_const(chunk).view(), 2);
  EXPECT_GT(frame.side.size(), 2 * 8 * 4U);
  const auto x = testing::PlaneValues(testing::AsConst(chunk.view()).layers[0].k);
  const auto y = testing::PlaneValues(std::as_const(frame.decoded).view().layers[0].k);
  for (std::size_t i = 8; i < x.size(); ++i) {
    if (std::fabs(x[i]) > 127.5F) {
      EXPECT_EQ(x[i], y[i]);
    } else {
      EXPECT_NEAR(x[i], y[i], 0.5);
    }
  }
}

// Each byte of each section in turn: decoded or refused, the same by both executors.
TEST(TransformCoding, DamagedBytesAreRefusedOrDecoded) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat16, {{1, 8, 8}, {1, 8, 8}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 24});
  const char* const chain = "given:octaves=3|unrope|whiten:step=0.02|predict|steps|none";
  const WeighedFrame frame = CodeWeighed(chain, chunk.view());
  std::vector<std::byte> WeighedFrame::*const sections[] = {
      &WeighedFrame::classes, &WeighedFrame::side, &WeighedFrame::symbols};
  std::size_t refused = 0;
  for (const auto section : sections) {
    ASSERT_FALSE((frame.*section).empty());
    for (std::size_t at = 0; at < (frame.*section).size(); at += 1 + at / 64) {
      for (const int change : {1, 0x80, 0xFF, -1}) {
        WeighedFrame damaged;
        damaged.classes = frame.classes;
        damaged.side = frame.side;
        damaged.symbols = frame.symbols;
        auto& bytes = damaged.*section;
        if (change < 0) bytes.resize(at);
        if (change >= 0) bytes[at] ^= static_cast<std::byte>(change);
        KvBuffer slow;
        KvBuffer fast;
        const auto first = DecodeWeighed(chain, chunk.view(), damaged, Executor::kReference, slow);
        const auto second = DecodeWeighed(chain, chunk.view(), damaged, Executor::kFast, fast);
        ASSERT_EQ(first.has_value(), second.has_value()) << at;
        if (!first) {
          EXPECT_EQ(first.error().code, ErrorCode::kCorruptData) << first.error().message;
          EXPECT_EQ(second.error().code, ErrorCode::kCorruptData) << second.error().message;
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 50U);
}

TEST(TransformCoding, NamesValuesThatCannotBeCoded) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat32, {{2, 8, 8}, {2, 8, 8}});
  KvBuffer chunk = MakeChunk(geometry, {0, 70});
  auto* const values = reinterpret_cast<float*>(chunk.view().layers[1].v.data);
  values[66 * 16 + 9] = NAN;
  const CodecOptions options{.threads = 2, .calibration = testing::SampleArtefact(geometry)};
  FrameEncoder encoder =
      FrameEncoder::Create(ParseProfile("unrope|whiten|predict|steps").value(), options).value();
  std::vector<std::byte> frame;
  const auto status = encoder.Encode(std::as_const(chunk).view(), {}, frame);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(status.error().message, HasSubstr("layer 1 V token 66 head 1 channel 1"));
}

TEST(TransformCoding, AnArtefactOfOtherShapesIsNoMatch) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat16, {{2, 8, 8}});
  CalibrationArtefact::Contents contents;
  contents.geometry = geometry;
  const KvBuffer chunk = MakeChunk(geometry, {0, 8});
  const CodecOptions options{
      .calibration = std::make_shared<const CalibrationArtefact>(contents, Fingerprint{})};
  FrameEncoder encoder =
      FrameEncoder::Create(ParseProfile("unrope|whiten|predict|steps").value(), options).value();
  std::vector<std::byte> frame;
  const auto status = encoder.Encode(chunk.view(), {}, frame);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
}

}  // namespace
}  // namespace kvserve
