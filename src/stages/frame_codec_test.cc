#include "kvserve/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>

#include "frame/frame.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

using ::testing::AllOf;
using testing::Difference;
using ::testing::HasSubstr;
using testing::LayerShape;
using testing::MakeChunk;
using testing::MakeGeometry;

constexpr const char* kLossy = "hadamard|uniform|zstd";

Fingerprint Filled(std::uint8_t byte) {
  Fingerprint fingerprint;
  fingerprint.bytes.fill(byte);
  return fingerprint;
}

std::vector<std::byte> Encode(std::string_view text, const ConstKvView& view,
                              const EncodeOptions& options = {}) {
  std::vector<std::byte> frame;
  const auto status = EncodeFrame(view, ParseProfile(text).value(), options, frame);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return frame;
}

Error EncodeError(std::string_view text, const ConstKvView& view) {
  std::vector<std::byte> frame(3, std::byte{7});
  const auto status = EncodeFrame(view, ParseProfile(text).value(), {}, frame);
  EXPECT_FALSE(status.has_value());
  EXPECT_EQ(frame, std::vector<std::byte>(3, std::byte{7}));
  return status ? Error{} : status.error();
}

Error DecodeError(std::span<const std::byte> frame, const DecodeOptions& options = {}) {
  KvBuffer out;
  const auto length = DecodeFrame(frame, options, out);
  EXPECT_FALSE(length.has_value());
  return length ? Error{} : length.error();
}

// The frame again with another header or other sections, its checksums right.
template <typename Change>
std::vector<std::byte> Rewrite(const std::vector<std::byte>& frame, Change change) {
  const FrameView parsed = ReadFrame(frame).value();
  FrameHeader header = parsed.header;
  std::vector<std::vector<std::byte>> bytes;
  for (const Section& section : parsed.sections) {
    bytes.emplace_back(section.bytes.begin(), section.bytes.end());
  }
  change(header, bytes);
  std::vector<Section> sections;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    sections.push_back({parsed.sections[i].kind, bytes[i]});
  std::vector<std::byte> out;
  const auto status = WriteFrame(header, sections, out);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return out;
}

KvBuffer Sample(DType dtype = DType::kBFloat16, TokenRange tokens = {0, 20}) {
  return MakeChunk(MakeGeometry(dtype, std::vector<LayerShape>(4, {3, 64, 64})), tokens);
}

TEST(FrameCodec, CarriesIdentityTokensAndSettings) {
  const KvBuffer chunk = Sample(DType::kFloat16, {32, 48});
  EncodeOptions options;
  options.model = Filled(1);
  options.key = Filled(2);
  options.prompt_tokens = 100;
  const auto frame = Encode("hadamard:seed=77|uniform:levels=8|zstd", chunk.view(), options);
  const FrameHeader header = ReadFrame(frame).value().header;
  EXPECT_EQ(header.model, options.model);
  EXPECT_EQ(header.key, options.key);
  EXPECT_EQ(header.prompt_tokens, 100U);
  EXPECT_EQ(header.tokens, (TokenRange{32, 48}));
  EXPECT_EQ(header.dtype, DType::kFloat16);
  EXPECT_EQ(header.layers.size(), 4U);
  ASSERT_EQ(header.stages.size(), 3U);
  EXPECT_EQ(header.stages[0].id, 0x0201);
  EXPECT_EQ(header.stages[0].parameters[0], (ParameterValue{1, 77.0}));
  EXPECT_TRUE(header.artefact.empty());
}

TEST(FrameCodec, AppendsAndDecodesFramesInARow) {
  std::vector<std::byte> file;
  std::vector<KvBuffer> chunks;
  for (std::uint32_t begin = 0; begin < 33; begin += 16) {
    chunks.push_back(Sample(DType::kFloat16, {begin, std::min(begin + 16, 33U)}));
    ASSERT_TRUE(
        EncodeFrame(std::as_const(chunks.back()).view(), ParseProfile("none").value(), {}, file));
  }
  std::size_t at = 0;
  KvBuffer out;
  for (const KvBuffer& chunk : chunks) {
    const auto length = DecodeFrame(std::span(file).subspan(at), {}, out);
    ASSERT_TRUE(length.has_value()) << length.error().message;
    EXPECT_EQ(Difference(chunk.view(), std::as_const(out).view()), "");
    at += *length;
  }
  EXPECT_EQ(at, file.size());
}

TEST(FrameCodec, DecodesToTheDTypeOfTheCacheThatWasEncoded) {
  KvBuffer chunk = MakeChunk(MakeGeometry(DType::kBFloat16, {{1, 8, 8}}), {0, 3});
  testing::SetValue(chunk.view().layers[0].k, 1, 0, 2, 188.0F);  // 0x433C, 3.617 if read as fp16
  KvBuffer out = MakeChunk(MakeGeometry(DType::kFloat16, {{1, 8, 8}}), {0, 3});
  const auto frame = Encode("lossless", std::as_const(chunk).view());
  ASSERT_TRUE(DecodeFrame(frame, {}, out));
  EXPECT_EQ(out.geometry().dtype, DType::kBFloat16);
  EXPECT_EQ(testing::PlaneValues(std::as_const(out).view().layers[0].k)[8 + 2], 188.0F);
}

TEST(FrameCodec, KeepsLayersOfASubset) {
  KvBuffer chunk = Sample();
  ConstKvView some = std::as_const(chunk).view();
  some.layers.erase(some.layers.begin() + 1, some.layers.begin() + 3);
  KvBuffer out;
  ASSERT_TRUE(DecodeFrame(Encode(kLossy, some), {}, out));
  EXPECT_EQ(out.geometry().layers.size(), 4U);
  ASSERT_EQ(out.view().layers.size(), 2U);
  EXPECT_EQ(out.view().layers[1].layer, 3U);
}

TEST(FrameCodec, RefusesAnotherModelOrKey) {
  const KvBuffer chunk = Sample();
  EncodeOptions options;
  options.model = Filled(1);
  options.key = Filled(2);
  const auto frame = Encode("none", chunk.view(), options);
  KvBuffer out;
  EXPECT_TRUE(DecodeFrame(frame, {.model = Filled(1), .key = Filled(2)}, out));
  EXPECT_EQ(DecodeError(frame, {.model = Filled(3)}).code, ErrorCode::kMismatch);
  EXPECT_THAT(DecodeError(frame, {.key = Filled(3)}).message, HasSubstr("key is 0202"));
}

TEST(FrameCodec, RefusesMoreRawBytesThanAllowed) {
  const KvBuffer chunk = Sample();
  const auto frame = Encode(kLossy, chunk.view());
  const std::uint64_t raw = RawBytes(chunk.view());
  KvBuffer out;
  EXPECT_TRUE(DecodeFrame(frame, {.max_raw_bytes = raw}, out));
  EXPECT_EQ(DecodeError(frame, {.max_raw_bytes = raw - 1}).code, ErrorCode::kResourceExhausted);
}

// Layers that are within the limit one by one, but not together.
TEST(FrameCodec, RefusesHugeShapes) {
  const KvBuffer chunk = MakeChunk(MakeGeometry(DType::kFloat32, {{1, 8, 8}, {1, 8, 8}}), {0, 3});
  const auto frame = Rewrite(Encode("none", chunk.view()), [](FrameHeader& header, auto&) {
    header.tokens.end = 1U << 20;
    for (FrameLayer& layer : header.layers) {
      layer.tokens.end = 1U << 20;
      layer.geometry.kv_heads = 16;
      layer.geometry.k_dim = layer.geometry.v_dim = 128;
    }
  });
  const Error error = DecodeError(frame);
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message, HasSubstr("raw size of 34359738368 bytes"));
}

// A header may say more than its sections hold: memory is filled only as far as bytes are there.
TEST(FrameCodec, FillsNoMemoryOnTheWordOfAHeader) {
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const KvBuffer chunk = MakeChunk(MakeGeometry(DType::kFloat16, {{1, 8, 8}}), {0, 3});
  for (const char* profile : {"none", "uniform|rans", "hadamard|uniform|bitpack"}) {
    const auto frame = Rewrite(Encode(profile, chunk.view()), [](FrameHeader& header, auto&) {
      header.tokens.end = header.layers[0].tokens.end = 1U << 20;
      header.layers[0].geometry.kv_heads = 4;
      header.layers[0].geometry.k_dim = header.layers[0].geometry.v_dim = 128;  // 2 GiB
    });
    const auto before = peak_kib();
    EXPECT_EQ(DecodeError(frame).code, ErrorCode::kCorruptData);
    EXPECT_LT(peak_kib() - before, 512 * 1024) << profile;
  }
}

TEST(FrameCodec, RefusesStagesThatItDoesNotHave) {
  const KvBuffer chunk = Sample();
  const auto frame = Encode("hadamard:seed=77|uniform|zstd", chunk.view());
  const auto changed = [&](auto change) {
    return DecodeError(Rewrite(frame, [&](FrameHeader& header, auto&) { change(header.stages); }));
  };
  Error error = changed([](auto& stages) { stages[0].id = 0x02EE; });
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("0x02ee"));
  error = changed([](auto& stages) { stages[0].version = 9; });
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("hadamard version 9"));
  error = changed([](auto& stages) { stages[0].parameters[0].value = 0.5; });
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message, HasSubstr("seed=0.5"));
  error = changed([](auto& stages) { stages[0].parameters.pop_back(); });
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  error = changed([](auto& stages) { std::swap(stages[0], stages[1]); });
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  error = changed([](auto& stages) { stages.pop_back(); });
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
}

// A transform that the receiver undid with another seed would give fluent nonsense: the seed that
// was used travels with the data.
TEST(FrameCodec, DecodesWithTheSettingsOfTheFrame) {
  const KvBuffer chunk = Sample(DType::kFloat32);
  const auto frame = Encode("hadamard:seed=77|uniform:levels=256|none", chunk.view());
  const auto wrong =
      Rewrite(frame, [](FrameHeader& header, auto&) { header.stages[0].parameters[0].value = 78; });
  KvBuffer right_out;
  KvBuffer wrong_out;
  ASSERT_TRUE(DecodeFrame(frame, {}, right_out));
  ASSERT_TRUE(DecodeFrame(wrong, {}, wrong_out));
  const auto noise = [&](const KvBuffer& out) {
    const auto x = testing::PlaneValues(chunk.view().layers[0].k);
    const auto y = testing::PlaneValues(out.view().layers[0].k);
    double sum = 0.0;
    for (std::size_t i = 192; i < x.size(); ++i) sum += std::abs(double{x[i]} - y[i]);
    return sum;
  };
  EXPECT_LT(noise(right_out) * 20, noise(wrong_out));
}

TEST(FrameCodec, RefusesAnArtefactThatNoStageNeeds) {
  const KvBuffer chunk = Sample();
  const auto frame = Rewrite(Encode("none", chunk.view()),
                             [](FrameHeader& header, auto&) { header.artefact = Filled(5); });
  const Error error = DecodeError(frame);
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message, HasSubstr(Filled(5).hex()));
}

// Whatever an encoder and a decoder have seen before, errors too, and wherever they were moved to,
// they give what fresh ones give.
TEST(FrameCodec, CodersGiveTheSameAfterOtherShapesErrorsAndMoves) {
  const KvBuffer chunks[] = {
      MakeChunk(MakeGeometry(DType::kFloat16, {{2, 64, 64}, {1, 40, 24}}), {0, 33}),
      MakeChunk(MakeGeometry(DType::kBFloat16, {{3, 16, 16}}), {7, 8}),
      MakeChunk(MakeGeometry(DType::kFloat32, {{1, 100, 0}}), {0, 300})};
  KvBuffer broken = MakeChunk(MakeGeometry(DType::kFloat32, {{2, 48, 48}}), {0, 20});
  std::fill_n(broken.view().layers[0].v.data, 4, std::byte{0xFF});  // NaN
  FrameDecoder decoder = FrameDecoder::Create({.threads = 2}).value();
  for (const char* text : {"hadamard|uniform:reconstruct=mean|rans", "affine:scale=1|delta|fp8|lz4",
                           "uniform:axis=group|bitpack"}) {
    FrameEncoder encoder = FrameEncoder::Create(ParseProfile(text).value(), {.threads = 2}).value();
    for (std::size_t round = 0; round < 6; ++round) {
      const ConstKvView view = std::as_const(chunks[round % 3]).view();
      const std::vector<std::byte> expected = Encode(text, view);
      std::vector<std::byte> frame;
      EXPECT_FALSE(encoder.Encode(std::as_const(broken).view(), {}, frame));
      EXPECT_TRUE(frame.empty());
      FrameEncoder moved = std::move(encoder);
      ASSERT_TRUE(moved.Encode(view, {}, frame)) << text << " " << round;
      EXPECT_TRUE(frame == expected) << text << " " << round;
      encoder = std::move(moved);

      KvBuffer decoded;
      std::vector<std::byte> damaged = frame;
      damaged[damaged.size() - 5] ^= std::byte{1};
      EXPECT_FALSE(decoder.Decode(damaged, {}, decoded));
      EXPECT_FALSE(decoder.Decode(std::span(frame).first(frame.size() / 2), {}, decoded));
      FrameDecoder next = std::move(decoder);
      ASSERT_TRUE(next.Decode(frame, {}, decoded)) << text << " " << round;
      decoder = std::move(next);
      KvBuffer fresh;
      ASSERT_TRUE(DecodeFrame(frame, {}, fresh));
      EXPECT_EQ(Difference(std::as_const(fresh).view(), std::as_const(decoded).view()), "") << text;
    }
  }
}

TEST(FrameCodec, MovedFromCodersAreAnError) {
  const KvBuffer chunk = MakeChunk(MakeGeometry(DType::kFloat16, {{1, 8, 8}}), {0, 2});
  FrameEncoder encoder = FrameEncoder::Create(ParseProfile("none").value()).value();
  FrameDecoder decoder = FrameDecoder::Create().value();
  const FrameEncoder taken = std::move(encoder);
  const FrameDecoder other = std::move(decoder);
  std::vector<std::byte> frame;
  // NOLINTBEGIN(bugprone-use-after-move)
  const Status encoded = encoder.Encode(chunk.view(), {}, frame);
  ASSERT_FALSE(encoded.has_value());
  EXPECT_EQ(encoded.error().code, ErrorCode::kInvalidArgument);
  KvBuffer out;
  const auto decoded = decoder.Decode(Encode("none", chunk.view()), {}, out);
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code, ErrorCode::kInvalidArgument);
  // NOLINTEND(bugprone-use-after-move)
}

TEST(FrameCodec, RefusesThreadCountsThatCannotBe) {
  for (const std::uint32_t threads : {0U, 257U}) {
    const auto encoder = FrameEncoder::Create(ParseProfile("none").value(), {.threads = threads});
    ASSERT_FALSE(encoder.has_value());
    EXPECT_EQ(encoder.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(encoder.error().message, HasSubstr("threads " + std::to_string(threads)));
    EXPECT_FALSE(FrameDecoder::Create({.threads = threads}).has_value());
  }
}

// Option combinations that cannot work are one line before any work, not a crash during it.
TEST(FrameCodec, RefusesProfilesAndViewsThatDoNotFit) {
  KvBuffer chunk = Sample();
  ConstKvView view = std::as_const(chunk).view();
  Error error = EncodeError("hadamard|lossless", view);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, AllOf(HasSubstr("hadamard"), HasSubstr("lossless")));
  EXPECT_EQ(error.message.find('\n'), std::string::npos);
  ConstKvView device = view;
  device.device = Device::kCuda;
  for (auto& layer : device.layers) layer.k.device = layer.v.device = Device::kCuda;
  EXPECT_EQ(EncodeError("none", device).code, ErrorCode::kUnsupported);
  ConstKvView wrong = view;
  wrong.layers[2].v.dtype = DType::kFloat16;
  error = EncodeError("none", wrong);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("layer 2 V: dtype"));
  const KvBuffer bytes = testing::MakeRandomBits(MakeGeometry(DType::kUint8, {{1, 8, 8}}), {0, 4});
  error = EncodeError("uniform|rans", bytes.view());
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, AllOf(HasSubstr("uniform"), HasSubstr("uint8")));
}

TEST(FrameCodec, RefusesShapesOutOfRangeByName) {
  const KvBuffer chunk = MakeChunk(MakeGeometry(DType::kFloat16, {{1, 8, 8}, {1, 8, 8}}), {0, 2});
  const auto with = [&](auto change) {
    KvGeometry geometry = chunk.geometry();
    change(geometry.layers[1]);
    ConstKvView view = chunk.view();
    view.geometry = &geometry;
    return EncodeError("none", view);
  };
  Error error = with([](LayerGeometry& layer) { layer.k_dim = 0; });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("layer 1: k_dim 0"));
  error = with([](LayerGeometry& layer) { layer.v_dim = static_cast<std::uint32_t>(-1); });
  EXPECT_THAT(error.message, HasSubstr("v_dim 4294967295"));
  error = with([](LayerGeometry& layer) { layer.kv_heads = 4097; });
  EXPECT_THAT(error.message, HasSubstr("kv_heads 4097"));
}

// Sliding-window layers of one shape and global layers of another, five to one.
TEST(FrameCodec, KeepsEachLayersOwnShape) {
  std::vector<LayerShape> shapes;
  shapes.reserve(60);
  for (int i = 0; i < 60; ++i) {
    shapes.push_back(i % 6 == 5 ? LayerShape{4, 512, 512} : LayerShape{16, 256, 256, 8});
  }
  const KvGeometry geometry = MakeGeometry(DType::kBFloat16, shapes);
  const KvBuffer chunk = MakeChunk(geometry, {0, 12});
  for (const char* profile : {"none", kLossy}) {
    const auto frame = Encode(profile, chunk.view());
    KvBuffer out;
    ASSERT_TRUE(DecodeFrame(frame, {}, out));
    EXPECT_EQ(out.geometry(), geometry);
    EXPECT_EQ(out.view().layers[0].tokens, (TokenRange{4, 12}));
    EXPECT_EQ(out.view().layers[5].tokens, (TokenRange{0, 12}));
    for (const std::size_t length :
         {std::size_t{40}, std::size_t{100}, frame.size() / 2, frame.size() - 1}) {
      EXPECT_EQ(DecodeError(std::span(frame).first(length)).code, ErrorCode::kCorruptData);
    }
  }
}

// Bodies that an attacker signed: any outcome but a crash, a hang or an error of ours.
TEST(FrameCodec, SurvivesSignedNonsense) {
  const KvBuffer chunk = MakeChunk(MakeGeometry(DType::kFloat16, {{1, 16, 12}, {2, 8, 0}}), {0, 9});
  for (const char* profile :
       {"none", "lossless", "uniform|bitpack", "hadamard|uniform|rans", kLossy}) {
    const auto frame = Encode(profile, chunk.view());
    const std::size_t sections = ReadFrame(frame).value().sections.size();
    for (std::size_t s = 0; s < sections; ++s) {
      const std::size_t size = ReadFrame(frame).value().sections[s].bytes.size();
      for (std::size_t i = 0; i < 2 * size; ++i) {
        const auto hostile = Rewrite(frame, [&](FrameHeader&, auto& bytes) {
          if (i < size) bytes[s].resize(i);
          if (i >= size) bytes[s][i - size] ^= static_cast<std::byte>(1U << (i % 8));
        });
        KvBuffer out;
        const auto length = DecodeFrame(hostile, {}, out);
        if (length) {
          EXPECT_GE(i, size) << profile << ": decoded a section cut to " << i;
          continue;
        }
        EXPECT_EQ(length.error().code, ErrorCode::kCorruptData)
            << profile << ": " << length.error().message;
      }
    }
  }
}

TEST(FrameCodec, TimesStagesAndFrame) {
  const KvBuffer chunk = Sample();
  StageSeconds seconds;
  std::vector<std::byte> frame;
  ASSERT_TRUE(EncodeFrame(chunk.view(), ParseProfile(kLossy).value(), {}, frame, &seconds));
  for (const char* name : {"hadamard", "uniform", "zstd", "frame", "convert"}) {
    EXPECT_EQ(seconds.count(name), 1U) << name;
  }
  seconds.clear();
  KvBuffer out;
  ASSERT_TRUE(DecodeFrame(frame, {}, out, &seconds));
  for (const char* name : {"hadamard", "uniform", "zstd", "frame", "convert"}) {
    EXPECT_EQ(seconds.count(name), 1U) << name;
  }
}

TEST(PrefixKey, DependsOnModelAndTokens) {
  const std::vector<std::int32_t> tokens = {1, 2, 3};
  const std::vector<std::int32_t> other = {1, 2, 4};
  const Fingerprint key = PrefixKey(Filled(1), tokens);
  EXPECT_EQ(key, PrefixKey(Filled(1), tokens));
  EXPECT_NE(key, PrefixKey(Filled(2), tokens));
  EXPECT_NE(key, PrefixKey(Filled(1), other));
  EXPECT_NE(key, PrefixKey(Filled(1), std::span(tokens).first(2)));
  EXPECT_FALSE(PrefixKey(Filled(1), {}).empty());
}

}  // namespace
}  // namespace kvserve
