// Bytes that were cut, flipped, swapped or made up: always an error that names what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/byte_io.h"
#include "base/hash.h"
#include "frame/frame.h"
#include "frame/layout.h"
#include "frame/testing/sample_frame.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes SampleBytes() {
  const auto sample = testing::Sample();
  Bytes bytes;
  EXPECT_TRUE(WriteFrame(sample.header, sample.sections(), bytes));
  return bytes;
}

template <typename T>
void Set(Bytes& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

Error ReadError(const Bytes& bytes) {
  const auto view = ReadFrame(bytes);
  EXPECT_FALSE(view) << "accepted";
  return view ? Error{ErrorCode::kInternal, "accepted"} : view.error();
}

// A frame around `body` with true lengths and checksum, so that only the fields are wrong.
Bytes Envelope(const Bytes& body, std::size_t section_bytes = 0) {
  const std::size_t header_bytes = kPrefixBytes + body.size();
  Bytes bytes(header_bytes + section_bytes);
  std::memcpy(bytes.data(), kFrameMagic.data(), kFrameMagic.size());
  Set(bytes, kVersionOffset, kFrameVersion);
  Set(bytes, kHeaderBytesOffset, static_cast<std::uint32_t>(header_bytes));
  Set(bytes, kFrameBytesOffset, static_cast<std::uint64_t>(bytes.size()));
  std::ranges::copy(body, bytes.begin() + kPrefixBytes);
  Set(bytes, kChecksumOffset, Hash64(std::span(bytes).first(header_bytes)));
  return bytes;
}

// Fields of a header body as numbers that need not fit.
struct RawShape {
  std::uint64_t kv_heads = 1, k_dim = 8, v_dim = 8, window = 0;
  std::uint8_t rope_style = 0;
  float theta = 0.0F;
  std::uint64_t offset = 0, tokens = 4;
};
struct RawRun {
  std::uint64_t skipped = 0, count = 2, shape = 0;
};
struct RawBody {
  std::uint8_t flags = 0, dtype = 1;
  std::uint64_t model_layers = 2, first_token = 0, tokens = 4, prompt_tokens = 0;
  std::uint64_t shape_count = 1;
  std::vector<RawShape> shapes = {{}};
  std::uint64_t run_count = 1;
  std::vector<RawRun> runs = {{}};
  std::uint64_t stage_count = 0;
  Bytes stages;
  std::uint8_t section_count = 0;
  Bytes sections;

  [[nodiscard]] Bytes bytes() const {
    Bytes result;
    ByteWriter out(result);
    out.Put(flags);
    out.Put(dtype);
    for (const auto field : {model_layers, first_token, tokens, prompt_tokens})
      out.PutVarint(field);
    (void)out.Grow(32);
    out.PutVarint(shape_count);
    for (const auto& shape : shapes) {
      for (const auto field : {shape.kv_heads, shape.k_dim, shape.v_dim, shape.window}) {
        out.PutVarint(field);
      }
      out.Put(shape.rope_style);
      if (shape.rope_style != 0) out.Put(shape.theta);
      out.PutVarint(shape.offset);
      out.PutVarint(shape.tokens);
    }
    out.PutVarint(run_count);
    for (const auto& run : runs) {
      for (const auto field : {run.skipped, run.count, run.shape}) out.PutVarint(field);
    }
    out.PutVarint(stage_count);
    out.PutBytes(stages);
    out.Put(section_count);
    out.PutBytes(sections);
    return result;
  }
};

void ExpectCorrupt(const RawBody& body, const std::string& message) {
  const auto error = ReadError(Envelope(body.bytes()));
  EXPECT_EQ(error.code, ErrorCode::kCorruptData) << error.message;
  EXPECT_THAT(error.message, HasSubstr(message));
}

TEST(Hostile, TheHandMadeBodyIsGood) {
  const auto view = ReadFrame(Envelope(RawBody{}.bytes()));
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->header.layers.size(), 2U);
}

TEST(Hostile, EveryTruncationFails) {
  const Bytes whole = SampleBytes();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(ReadError(cut).code, ErrorCode::kCorruptData) << length;
  }
}

TEST(Hostile, EverySingleBitFlipFails) {
  const Bytes whole = SampleBytes();
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Bytes flipped = whole;
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const auto code = ReadError(flipped).code;
    EXPECT_TRUE(code == ErrorCode::kCorruptData || code == ErrorCode::kUnsupported) << bit;
  }
}

TEST(Hostile, AnotherVersionIsToldBeforeAnyChecksum) {
  for (const std::uint16_t version : {std::uint16_t{0}, std::uint16_t{2}, std::uint16_t{65535}}) {
    Bytes bytes = SampleBytes();
    Set(bytes, kVersionOffset, version);
    const auto error = ReadError(bytes);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_EQ(error.message, "frame version " + std::to_string(version) +
                                 " is not supported; this build reads version 1");
  }
}

TEST(Hostile, AnUnknownFeatureIsToldByItsBit) {
  for (const unsigned bit : {0U, 17U, 63U}) {
    Bytes bytes = SampleBytes();
    Set(bytes, kFeaturesOffset, std::uint64_t{1} << bit);
    const auto error = ReadError(bytes);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, HasSubstr("feature bit " + std::to_string(bit) + " "));
    EXPECT_THAT(error.message, HasSubstr("mask 0"));
  }
}

TEST(Hostile, WrongMagic) {
  Bytes bytes = SampleBytes();
  bytes[0] = std::byte{'k'};
  EXPECT_THAT(ReadError(bytes).message, HasSubstr("magic"));
}

TEST(Hostile, LengthsThatLie) {
  for (const std::uint32_t length : {0U, 33U, kMaxHeaderBytes + 1, 0xFFFFFFFFU}) {
    Bytes bytes = SampleBytes();
    Set(bytes, kHeaderBytesOffset, length);
    EXPECT_THAT(ReadError(bytes).message, HasSubstr("header_bytes " + std::to_string(length)));
  }
  for (const std::uint64_t length : {std::uint64_t{1} << 63, UINT64_MAX, std::uint64_t{100000}}) {
    Bytes bytes = SampleBytes();
    Set(bytes, kFrameBytesOffset, length);
    EXPECT_THAT(ReadError(bytes).message, HasSubstr("frame_bytes is " + std::to_string(length)));
  }
  Bytes bytes = SampleBytes();
  Set(bytes, kFrameBytesOffset, std::uint64_t{40});
  EXPECT_THAT(ReadError(bytes).message, HasSubstr("less than header_bytes"));
}

// Swapped streams, blocks and frames: sizes agree, so only contents can tell.
TEST(Hostile, SwappedSectionsOfEqualSizeAreCaught) {
  auto sample = testing::Sample();
  sample.side = testing::Pattern(40, 7);
  sample.symbols = testing::Pattern(40, 8);
  Bytes bytes;
  ASSERT_TRUE(WriteFrame(sample.header, sample.sections(), bytes));
  std::swap_ranges(bytes.end() - 80, bytes.end() - 40, bytes.end() - 40);
  EXPECT_THAT(ReadError(bytes).message, HasSubstr("section side does not match"));
  // Even equal contents have different checksums in sections of different kinds.
  EXPECT_NE(Hash64(sample.side, 2), Hash64(sample.side, 3));
}

TEST(Hostile, SwappedStreamsInsideASectionAreCaught) {
  Bytes bytes = SampleBytes();
  std::swap_ranges(bytes.end() - 40, bytes.end() - 20, bytes.end() - 20);
  EXPECT_THAT(ReadError(bytes).message, HasSubstr("section symbols does not match"));
}

TEST(Hostile, ABlockOfAnotherFrameIsCaught) {
  const Bytes first = SampleBytes();
  auto other = testing::Sample();
  other.symbols = testing::Pattern(40, 100);
  Bytes second;
  ASSERT_TRUE(WriteFrame(other.header, other.sections(), second));
  ASSERT_EQ(first.size(), second.size());
  Bytes mixed(first.begin(), first.end() - 40);
  mixed.insert(mixed.end(), second.end() - 40, second.end());
  EXPECT_THAT(ReadError(mixed).message, HasSubstr("section symbols does not match"));
}

TEST(Hostile, ShapeFieldsOutsideTheirRange) {
  const auto shape = [](auto change) {
    RawBody body;
    change(body.shapes[0]);
    return body;
  };
  const std::uint64_t huge = std::uint64_t{1} << 63;
  ExpectCorrupt(shape([](auto& s) { s.kv_heads = 0; }), "shape 0: kv_heads 0 is outside 1..4096");
  ExpectCorrupt(shape([&](auto& s) { s.kv_heads = huge; }), "kv_heads 9223372036854775808");
  ExpectCorrupt(shape([](auto& s) { s.k_dim = 0; }), "k_dim 0 is outside 1..65536");
  ExpectCorrupt(shape([&](auto& s) { s.k_dim = huge; }), "k_dim 9223372036854775808");
  ExpectCorrupt(shape([&](auto& s) { s.k_dim = huge * 2 - 1; }), "k_dim 18446744073709551615");
  ExpectCorrupt(shape([](auto& s) { s.v_dim = kMaxDim + 1; }), "v_dim 65537");
  ExpectCorrupt(shape([&](auto& s) { s.window = huge; }), "window_tokens");
  ExpectCorrupt(shape([](auto& s) { s.rope_style = 3; }), "rope_style 3 is outside 0..2");
  ExpectCorrupt(shape([](auto& s) { s.rope_style = 1; }), "rope_theta must be positive");
  ExpectCorrupt(shape([](auto& s) { s.rope_style = 1, s.theta = -1.0F; }), "rope_theta");
  ExpectCorrupt(shape([](auto& s) { s.rope_style = 2, s.theta = INFINITY; }), "rope_theta");
  ExpectCorrupt(shape([](auto& s) { s.rope_style = 2, s.theta = NAN; }), "rope_theta");
  ExpectCorrupt(shape([](auto& s) { s.offset = 5; }), "token offset 5 is outside 0..4");
  ExpectCorrupt(shape([](auto& s) { s.offset = 1; }), "token count 4 is outside 0..3");
  ExpectCorrupt(shape([&](auto& s) { s.tokens = huge; }), "token count");
}

TEST(Hostile, FrameFieldsOutsideTheirRange) {
  const std::uint64_t huge = std::uint64_t{1} << 63;
  ExpectCorrupt({.flags = 2}, "flags 2 has unknown bits");
  ExpectCorrupt({.model_layers = 0}, "model_layers 0 is outside 1..4096");
  ExpectCorrupt({.model_layers = huge}, "model_layers");
  ExpectCorrupt({.first_token = huge}, "first token");
  ExpectCorrupt({.tokens = huge}, "token count");
  ExpectCorrupt({.first_token = kMaxTokens, .tokens = 4}, "token count 4 is outside 0..0");
  ExpectCorrupt({.prompt_tokens = 3}, "prompt_tokens 3");
  ExpectCorrupt({.prompt_tokens = huge}, "prompt_tokens");
}

TEST(Hostile, DTypesThatThisBuildDoesNotHave) {
  for (const unsigned dtype : {0U, 9U, 10U, 127U, 128U, 255U}) {
    const auto error =
        ReadError(Envelope(RawBody{.dtype = static_cast<std::uint8_t>(dtype)}.bytes()));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, HasSubstr("id " + std::to_string(dtype)));
  }
}

TEST(Hostile, LayerTableThatDoesNotAddUp) {
  ExpectCorrupt({.shape_count = 0}, "shape count 0");
  ExpectCorrupt({.shape_count = std::uint64_t{1} << 63}, "shape count");
  ExpectCorrupt({.shape_count = 3}, "shape 1");  // truncated table: runs are taken for a shape
  ExpectCorrupt({.run_count = 0}, "run count 0");
  ExpectCorrupt({.run_count = 3}, "run count 3 is outside 1..2");
  ExpectCorrupt({.runs = {{.count = 3}}}, "layer count 3 is outside 1..2");
  ExpectCorrupt({.runs = {{.count = 0}}}, "layer count 0");
  ExpectCorrupt({.runs = {{.count = std::uint64_t{1} << 63}}}, "layer count");
  ExpectCorrupt({.runs = {{.skipped = 3}}}, "skipped layers 3");
  ExpectCorrupt({.runs = {{.shape = 1}}}, "shape index 1 is outside 0..0");
}

TEST(Hostile, ATruncatedLayerTableIsRefused) {
  Bytes whole;
  ASSERT_TRUE(WriteFrame(testing::WindowedHeader(), {}, whole));
  const Bytes body(whole.begin() + kPrefixBytes, whole.end());
  for (std::size_t length = 0; length < body.size(); ++length) {
    const Bytes cut(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(ReadError(Envelope(cut)).code, ErrorCode::kCorruptData) << length;
  }
}

TEST(Hostile, OneEncodingPerHeader) {
  RawBody twice;  // the same shape listed twice
  twice.shape_count = 2;
  twice.shapes = {{}, {}};
  ExpectCorrupt(twice, "canonical");
  RawBody split;  // one run written as two
  split.run_count = 2;
  split.runs = {{.count = 1}, {.count = 1}};
  ExpectCorrupt(split, "canonical");
  ExpectCorrupt({.flags = 1}, "artefact fingerprint truncated");
}

Bytes StageBytes(std::uint64_t id, std::initializer_list<std::uint8_t> rest) {
  Bytes bytes;
  ByteWriter(bytes).PutVarint(id);
  for (const std::uint8_t byte : rest) bytes.push_back(static_cast<std::byte>(byte));
  return bytes;
}

Bytes RealParameter(double value) {
  Bytes bytes = StageBytes(5, {1, 1, 9, 1});
  ByteWriter(bytes).Put(value);
  return bytes;
}

TEST(Hostile, StagesThatAreNone) {
  ExpectCorrupt({.stage_count = 33}, "stage count 33");
  ExpectCorrupt({.stage_count = 1, .stages = StageBytes(0, {1, 0})}, "stage 0: id 0");
  ExpectCorrupt({.stage_count = 1, .stages = StageBytes(65536, {1, 0})}, "id 65536");
  ExpectCorrupt({.stage_count = 1, .stages = StageBytes(5, {1, 2, 9, 0, 9, 0})}, "ids must ascend");
  ExpectCorrupt({.stage_count = 1, .stages = StageBytes(5, {1, 1, 9, 3})}, "unknown tag 3");
  ExpectCorrupt({.stage_count = 1, .stages = RealParameter(NAN)}, "not finite");
  ExpectCorrupt({.stage_count = 1, .stages = RealParameter(-INFINITY)}, "not finite");
  ExpectCorrupt({.stage_count = 1, .stages = RealParameter(1e17)}, "beyond 2^53");
  ExpectCorrupt({.stage_count = 1, .stages = RealParameter(2.0)}, "canonical");
  ASSERT_TRUE(
      ReadFrame(Envelope(RawBody{.stage_count = 1, .stages = RealParameter(0.25)}.bytes())));
}

Bytes SectionRow(std::uint8_t kind, std::uint64_t size) {
  Bytes bytes{static_cast<std::byte>(kind)};
  ByteWriter out(bytes);
  out.PutVarint(size);
  out.Put(Hash64({}, kind));
  return bytes;
}

TEST(Hostile, SectionsPastTheEnd) {
  ExpectCorrupt({.section_count = 1, .sections = SectionRow(7, 0)}, "kind 7 is unknown");
  ExpectCorrupt({.section_count = 1, .sections = SectionRow(3, 1)}, "ends past frame_bytes");
  for (const std::uint64_t size : {std::uint64_t{1} << 63, UINT64_MAX}) {
    ExpectCorrupt({.section_count = 1, .sections = SectionRow(3, size)}, "ends past frame_bytes");
  }
  Bytes both = SectionRow(2, UINT64_MAX - 50);  // sums that wrap
  const Bytes second = SectionRow(3, UINT64_MAX - 50);
  both.insert(both.end(), second.begin(), second.end());
  ExpectCorrupt({.section_count = 2, .sections = both}, "ends past frame_bytes");
  Bytes repeated = SectionRow(3, 0);
  repeated.insert(repeated.end(), repeated.begin(), repeated.begin() + 10);
  ExpectCorrupt({.section_count = 2, .sections = repeated}, "out of order");
  const RawBody one{.section_count = 1, .sections = SectionRow(3, 0)};
  EXPECT_THAT(ReadError(Envelope(one.bytes(), 5)).message, HasSubstr("frame_bytes is"));
}

TEST(Hostile, ProductOfTheShapeIsBounded) {
  RawBody body;
  body.tokens = kMaxTokens;
  body.model_layers = kMaxLayers;
  body.shapes = {{.kv_heads = kMaxHeads, .k_dim = kMaxDim, .v_dim = kMaxDim, .tokens = kMaxTokens}};
  body.runs = {{.count = kMaxLayers}};
  ExpectCorrupt(body, "raw bytes of the frame pass");
}

}  // namespace
}  // namespace kvserve
