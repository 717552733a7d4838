// Every chain of the stage table over dtypes, shapes, token counts and memory layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "frame/frame.h"
#include "kvserve/codec.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/chunk.h"
#include "stages/testing/chains.h"
#include "stages/testing/frames.h"

namespace kvserve {
namespace {

using testing::Difference;
using testing::LayerShape;
using testing::MakeChunk;
using testing::MakeGeometry;
using testing::PlaneValues;

constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                             DType::kFloat8E4M3FN, DType::kFloat8E5M2FNUZ};

std::vector<std::byte> Encode(const std::string& text, const ConstKvView& view) {
  std::vector<std::byte> frame;
  const auto profile = ParseProfile(text);
  EXPECT_TRUE(profile.has_value()) << text;
  if (!profile) return frame;
  const auto status = testing::EncodeSample(view, *profile, frame);
  EXPECT_TRUE(status.has_value()) << text << ": " << status.error().message;
  return frame;
}

KvBuffer Decode(const std::vector<std::byte>& frame) {
  KvBuffer out;
  const auto length = testing::DecodeSample(frame, out);
  EXPECT_TRUE(length.has_value()) << length.error().message;
  EXPECT_EQ(length.value_or(0), frame.size());
  return out;
}

// One layer per head dimension of the field, then K unlike V, a single plane and windows.
std::vector<LayerShape> AllShapes() {
  std::vector<LayerShape> shapes;
  for (const std::uint32_t dim :
       {1U, 64U, 80U, 96U, 100U, 112U, 120U, 128U, 192U, 256U, 512U, 576U}) {
    shapes.push_back({1, dim, dim});
  }
  shapes.push_back({2, 192, 128});
  shapes.push_back({1, 576, 0});
  shapes.push_back({3, 64, 64, 16});
  shapes.push_back({1, 80, 96, 4});
  return shapes;
}

double SignalToNoise(const std::vector<float>& x, const std::vector<float>& y) {
  double signal = 0.0;
  double noise = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    signal += double{x[i]} * x[i];
    noise += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
  }
  return noise == 0.0 ? HUGE_VAL : 10 * std::log10(signal / noise);
}

// Bit-exact, or every plane better than `least_db`.
void ExpectClose(const ConstKvView& before, const ConstKvView& after, bool lossless,
                 double least_db, const std::string& what) {
  const std::string difference = Difference(before, after);
  if (lossless) {
    EXPECT_EQ(difference, "") << what;
    return;
  }
  const auto x = CodingOrder(before);
  const auto y = CodingOrder(after);
  ASSERT_EQ(x.size(), y.size()) << what;
  for (std::size_t p = 0; p < x.size(); ++p) {
    ASSERT_EQ(x[p].tokens, y[p].tokens) << what;
    ASSERT_EQ(x[p].view.dtype, y[p].view.dtype) << what;
    EXPECT_GE(SignalToNoise(PlaneValues(x[p].view), PlaneValues(y[p].view)), least_db)
        << what << " " << PlaneName(x[p].layer, x[p].kind);
  }
}

class EveryChain : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryChain, RoundTripsEveryShapeAndTokenCount) {
  const bool lossless = testing::IsLossless(ParseProfile(GetParam()).value());
  for (const DType dtype : kDTypes) {
    const KvGeometry geometry = MakeGeometry(dtype, AllShapes());
    for (const std::uint32_t tokens : {0U, 1U, 15U, 16U, 17U, 31U, 32U, 33U, 48U}) {
      const KvBuffer chunk = MakeChunk(geometry, {0, tokens});
      const auto frame = Encode(GetParam(), chunk.view());
      const KvBuffer decoded = Decode(frame);
      EXPECT_EQ(decoded.geometry(), geometry);
      EXPECT_EQ(decoded.tokens(), (TokenRange{0, tokens}));
      ExpectClose(chunk.view(), decoded.view(), lossless, 4.0,
                  GetParam() + " " + std::string(DTypeName(dtype)) + " " + std::to_string(tokens));
    }
  }
}

// Chunks from the middle of a request, and window layers that hold some, one or none of their
// tokens.
TEST_P(EveryChain, RoundTripsWindowsAndLaterChunks) {
  const bool lossless = testing::IsLossless(ParseProfile(GetParam()).value());
  const KvGeometry geometry =
      MakeGeometry(DType::kBFloat16, {{2, 64, 64}, {2, 64, 80, 16}, {1, 96, 0, 1}});
  for (const auto& [tokens, total] :
       {std::pair(TokenRange{0, 20}, 20U), std::pair(TokenRange{0, 20}, 30U),
        std::pair(TokenRange{0, 20}, 400U), std::pair(TokenRange{100, 133}, 133U),
        std::pair(TokenRange{100, 100}, 100U)}) {
    const KvBuffer chunk = MakeChunk(geometry, tokens, total);
    const KvBuffer decoded = Decode(Encode(GetParam(), chunk.view()));
    ExpectClose(chunk.view(), decoded.view(), lossless, 4.0,
                GetParam() + " of " + std::to_string(total));
  }
}

TEST_P(EveryChain, GivesTheSameBytesAgainAndForAnyLayout) {
  for (const DType dtype : kDTypes) {
    const KvGeometry geometry = MakeGeometry(dtype, {{3, 80, 96}, {1, 64, 0}, {2, 33, 31, 8}});
    const KvBuffer chunk = MakeChunk(geometry, {16, 37});
    const auto frame = Encode(GetParam(), chunk.view());
    EXPECT_EQ(Encode(GetParam(), chunk.view()), frame);
    for (const auto layout : testing::kLayouts) {
      const testing::StridedChunk strided(chunk.view(), layout);
      EXPECT_EQ(Encode(GetParam(), strided.const_view()), frame);
    }
  }
}

TEST_P(EveryChain, RefusesBytesBehindThoseOfASection) {
  const KvBuffer chunk = MakeChunk(MakeGeometry(DType::kFloat16, {{2, 64, 64}}), {0, 20});
  const auto frame = Encode(GetParam(), chunk.view());
  const FrameView parsed = ReadFrame(frame).value();
  for (const Section& longer : parsed.sections) {
    std::vector<std::byte> bytes(longer.bytes.begin(), longer.bytes.end());
    bytes.push_back(std::byte{0});
    auto sections = parsed.sections;
    for (Section& section : sections) {
      if (section.kind == longer.kind) section.bytes = bytes;
    }
    std::vector<std::byte> damaged;
    ASSERT_TRUE(WriteFrame(parsed.header, sections, damaged));
    KvBuffer out;
    const auto length = testing::DecodeSample(damaged, out);
    ASSERT_FALSE(length.has_value()) << SectionName(longer.kind);
    EXPECT_EQ(length.error().code, ErrorCode::kCorruptData);
  }
}

TEST_P(EveryChain, KeepsSpecialValuesOrRefusesThem) {
  const bool lossless = testing::IsLossless(ParseProfile(GetParam()).value());
  for (const DType dtype : kDTypes) {
    const KvGeometry geometry = MakeGeometry(dtype, {{2, 64, 80}, {1, 96, 0}});
    const KvBuffer chunk = testing::MakeRandomBits(geometry, {0, 33});
    std::vector<std::byte> frame;
    const auto status =
        testing::EncodeSample(chunk.view(), ParseProfile(GetParam()).value(), frame);
    if (lossless) {
      ASSERT_TRUE(status.has_value()) << status.error().message;
      const KvBuffer decoded = Decode(frame);
      EXPECT_EQ(Difference(chunk.view(), decoded.view()), "");
    } else {
      ASSERT_FALSE(status.has_value());
      EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
      EXPECT_TRUE(frame.empty());
    }
  }
}

// Whatever finite values come in, finite ones come out; transforms may refuse the largest.
TEST_P(EveryChain, NeverTurnsFiniteIntoInfinite) {
  const Profile profile = ParseProfile(GetParam()).value();
  const bool transforms = profile.stages.size() > 2;
  for (const DType dtype : kDTypes) {
    const bool half = dtype == DType::kFloat16;
    for (const float largest : {half ? 65504.0F : 0x1p90F, half ? 65504.0F : 0x1.FCp127F}) {
      KvBuffer chunk = MakeChunk(MakeGeometry(dtype, {{1, 64, 64}}), {0, 20});
      for (const auto& plane : CodingOrder(chunk.view())) {
        std::vector<float> values = PlaneValues(testing::AsConst(chunk.view()).layers[0].k);
        for (std::size_t i = 0; i < values.size(); i += 3)
          values[i] = i % 2 == 0 ? largest : -largest;
        ASSERT_TRUE(StoreFloats(values, plane.view));
      }
      std::vector<std::byte> frame;
      const auto status = testing::EncodeSample(std::as_const(chunk).view(), profile, frame);
      if (!status && transforms && largest > 0x1p90F) {
        EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
        continue;
      }
      ASSERT_TRUE(status.has_value()) << status.error().message;
      const KvBuffer decoded = Decode(frame);
      for (const auto& plane : CodingOrder(decoded.view())) {
        for (const float value : PlaneValues(plane.view)) ASSERT_TRUE(std::isfinite(value));
      }
    }
  }
}

TEST_P(EveryChain, KeepsConstantPlanes) {
  const Profile profile = ParseProfile(GetParam()).value();
  // By a transform, or in steps of a size that has nothing to do with the values.
  const bool mixes = profile.stages.size() > 2 || GetParam().find("steps") != std::string::npos;
  const bool calibrated = !FrameEncoder::Create(profile).has_value();
  for (const float value : {0.0F, -2.5F}) {
    if (value == 0.0F && calibrated) continue;  // a mean is left, and no signal to measure it by
    const KvGeometry geometry = MakeGeometry(DType::kBFloat16, {{2, 64, 80}});
    KvBuffer chunk = MakeChunk(geometry, {0, 33});
    for (const auto& plane : CodingOrder(chunk.view())) {
      ASSERT_TRUE(StoreFloats(std::vector<float>(plane.view.values(), value), plane.view));
    }
    const KvBuffer decoded = Decode(Encode(GetParam(), std::as_const(chunk).view()));
    ExpectClose(std::as_const(chunk).view(), decoded.view(), !mixes, 8.0, GetParam());
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& chain) {
  std::string name;
  for (const char c : chain.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Table, EveryChain, ::testing::ValuesIn(testing::AllChains()), TestName);

TEST(EverySetting, RoundTripsAndIsRecoveredFromTheBytes) {
  for (const std::string& text : testing::AllSettings()) {
    const Profile profile = ParseProfile(text).value();
    EXPECT_EQ(ParseProfile(profile.name).value().stages, profile.stages) << text;
    const KvGeometry geometry = MakeGeometry(DType::kFloat16, {{2, 100, 96}, {1, 64, 0}});
    const KvBuffer chunk = MakeChunk(geometry, {0, 17});
    const auto frame = Encode(text, chunk.view());
    const auto parsed = ReadFrame(frame);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->header.stages, profile.stages) << text;
    // Two levels are the coarsest there are.
    // A setting may be as coarse as two levels: no error beyond half of the largest range.
    const KvBuffer decoded = Decode(frame);
    ExpectClose(chunk.view(), decoded.view(), testing::IsLossless(profile), -20.0, text);
  }
}

// With nothing before it, the uniform quantizer is off by at most half a step of the range that a
// value shares: K per channel over the tokens after the raw first one, V per token.
TEST(UniformChain, StaysWithinHalfAStep) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat32, {{2, 100, 80}, {1, 7, 0}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 33});
  const KvBuffer decoded = Decode(Encode("uniform:k_levels=16,v_levels=8|none", chunk.view()));
  const auto before = CodingOrder(chunk.view());
  const auto after = CodingOrder(decoded.view());
  for (std::size_t p = 0; p < before.size(); ++p) {
    const auto x = PlaneValues(before[p].view);
    const auto y = PlaneValues(after[p].view);
    const std::size_t columns = std::size_t{before[p].view.heads} * before[p].view.dim;
    const bool key = before[p].kind == PlaneKind::kKey;
    for (std::size_t i = 0; i < columns; ++i) ASSERT_EQ(x[i], y[i]);
    for (std::size_t i = columns; i < x.size(); ++i) {
      const std::size_t first = key ? columns + i % columns : i - i % columns;
      const std::size_t count = key ? 32 : columns;
      float low = x[first];
      float high = x[first];
      for (std::size_t k = 0; k < count; ++k) {
        low = std::min(low, x[first + k * (key ? columns : 1)]);
        high = std::max(high, x[first + k * (key ? columns : 1)]);
      }
      // Steps are rounded up to a sixteenth.
      const float bound = (high - low) / (key ? 15.0F : 7.0F) / 2.0F * 17.0F / 16.0F;
      ASSERT_LE(std::abs(x[i] - y[i]), bound * 1.0001F)
          << PlaneName(before[p].layer, before[p].kind);
    }
  }
}

// Group sizes that do not divide the head dimension leave a shorter last group.
TEST(UniformChain, TakesAnyGroupWithAnyHeadDimension) {
  const KvBuffer chunk = MakeChunk(MakeGeometry(DType::kFloat16, AllShapes()), {0, 17});
  for (const char* group : {"16", "32", "64", "128"}) {
    const std::string text = std::string("uniform:levels=256,axis=group,group=") + group;
    const KvBuffer decoded = Decode(Encode(text, chunk.view()));
    ExpectClose(chunk.view(), decoded.view(), false, 36.0, text);
  }
}

TEST(HadamardChain, IsTransparentAtManyLevels) {
  for (const DType dtype : kDTypes) {
    const KvBuffer chunk = MakeChunk(MakeGeometry(dtype, AllShapes()), {0, 33});
    const KvBuffer decoded = Decode(Encode("hadamard|uniform:levels=256|none", chunk.view()));
    ExpectClose(chunk.view(), decoded.view(), false, 35.0, std::string(DTypeName(dtype)));
  }
}

// A stage that cannot shrink stores what it got: whatever the values, nothing grows by more than a
// few bytes per plane.
TEST(EveryLosslessChain, NeverGrowsIncompressibleData) {
  constexpr std::size_t kPlanes = 60;
  for (const DType dtype : kDTypes) {
    const KvGeometry geometry = MakeGeometry(dtype, std::vector<LayerShape>(30, {3, 64, 64}));
    const KvBuffer chunk = testing::MakeRandomBits(geometry, {0, 64});
    const std::size_t none = Encode("none", chunk.view()).size();
    EXPECT_LE(none, RawBytes(chunk.view()) + 4096);
    for (const std::string& text : testing::AllChains()) {
      if (!testing::IsLossless(ParseProfile(text).value())) continue;
      EXPECT_LE(Encode(text, chunk.view()).size(), none + 64 + 8 * kPlanes)
          << text << " " << DTypeName(dtype);
    }
  }
}

}  // namespace
}  // namespace kvserve
