// Caches of other forms than K and V in 16 bits: fp8 in its four types, opaque bytes, and single
// planes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "frame/frame.h"
#include "kernels/fp8/fp8.h"
#include "kvserve/codec.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

using testing::Difference;
using ::testing::HasSubstr;
using testing::LayerShape;
using testing::MakeGeometry;
using testing::PlaneValues;

constexpr DType kFp8Types[] = {DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2,
                               DType::kFloat8E5M2FNUZ};

std::vector<std::byte> Encode(std::string_view text, const ConstKvView& view) {
  std::vector<std::byte> frame;
  const auto status = EncodeFrame(view, ParseProfile(text).value(), {}, frame);
  EXPECT_TRUE(status.has_value()) << text << ": " << status.error().message;
  return frame;
}

KvBuffer Decode(std::span<const std::byte> frame) {
  KvBuffer out;
  const auto length = DecodeFrame(frame, {}, out);
  EXPECT_TRUE(length.has_value()) << length.error().message;
  return out;
}

ConstKvView ViewOf(const KvBuffer& buffer) {
  return buffer.view();
}

// Bytes of one fp8 type are never taken for another's: the frame says which, and 0x40 stays what it
// was.
TEST(Fp8Cache, KeepsItsTypeAndEveryByte) {
  for (const DType dtype : kFp8Types) {
    KvBuffer chunk;
    ASSERT_TRUE(chunk.Resize(MakeGeometry(dtype, {{1, 64, 64}}), {0, 4}, 4));
    for (int i = 0; i < 256; ++i) {
      chunk.view().layers[0].k.data[i] = static_cast<std::byte>(i);
      chunk.view().layers[0].v.data[i] = std::byte{0x40};
    }
    for (const char* text : {"none", "lossless", "lossless|bitpack", "none|zstd"}) {
      const auto frame = Encode(text, ViewOf(chunk));
      EXPECT_EQ(ReadFrame(frame)->header.dtype, dtype);
      const KvBuffer decoded = Decode(frame);
      EXPECT_EQ(Difference(ViewOf(chunk), ViewOf(decoded)), "") << text;
      const bool fnuz = Fp8FormatOf(dtype).fnuz;
      EXPECT_EQ(PlaneValues(ViewOf(decoded).layers[0].v)[0], fnuz ? 1.0F : 2.0F);
    }
    // Real quantizers refuse the NaN among the bytes and take them without.
    std::vector<std::byte> frame;
    const auto nan = EncodeFrame(ViewOf(chunk), ParseProfile("uniform|rans").value(), {}, frame);
    EXPECT_EQ(nan.error().code, ErrorCode::kBadInput);
  }
}

// Case A07: cross use. Planes of one type under the geometry of another are refused both ways, and
// the same bytes as another type are other values in every frame.
TEST(Fp8Cache, NoTypeIsTakenForAnother) {
  const std::vector<LayerShape> shapes = {{1, 64, 64}};
  const auto chunk_of = [&](DType dtype) {
    KvBuffer chunk;
    EXPECT_TRUE(chunk.Resize(MakeGeometry(dtype, shapes), {0, 4}, 4));
    for (const auto& plane : {chunk.view().layers[0].k, chunk.view().layers[0].v}) {
      std::fill_n(plane.data, plane.values(), std::byte{0x40});
    }
    return chunk;
  };
  for (const DType dtype : kFp8Types) {
    for (const DType another : kFp8Types) {
      if (dtype == another) continue;
      const KvBuffer chunk = chunk_of(dtype);
      const KvBuffer other = chunk_of(another);
      ConstKvView crossed = ViewOf(chunk);
      crossed.geometry = &other.geometry();
      for (const char* text : {"none", "lossless", "uniform|rans", "fp8"}) {
        std::vector<std::byte> frame;
        const auto refused = EncodeFrame(crossed, ParseProfile(text).value(), {}, frame);
        ASSERT_FALSE(refused) << text;
        EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
        EXPECT_THAT(refused.error().message, HasSubstr("dtype"));
        EXPECT_NE(Encode(text, ViewOf(chunk)), Encode(text, ViewOf(other))) << text;
        // A receiver sees what it got, also in a buffer that held the other type.
        KvBuffer out = chunk_of(another);
        ASSERT_TRUE(DecodeFrame(Encode(text, ViewOf(chunk)), {}, out));
        EXPECT_EQ(out.geometry().dtype, dtype);
        EXPECT_EQ(ViewOf(out).layers[0].k.dtype, dtype);
        EXPECT_EQ(PlaneValues(ViewOf(out).layers[0].k), PlaneValues(ViewOf(chunk).layers[0].k));
      }
    }
  }
}

TEST(Fp8Cache, RealQuantizersWorkOnItAsOnOthers) {
  for (const DType dtype : kFp8Types) {
    const KvBuffer chunk = testing::MakeChunk(MakeGeometry(dtype, {{2, 64, 80}}), {0, 40});
    for (const char* text : {"hadamard|uniform:levels=200|rans", "fp8|rans"}) {
      const auto values = PlaneValues(ViewOf(chunk).layers[0].v);
      const auto decoded = PlaneValues(ViewOf(Decode(Encode(text, ViewOf(chunk)))).layers[0].v);
      double signal = 0.0;
      double noise = 0.0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        signal += double{values[i]} * values[i];
        noise += (double{values[i]} - decoded[i]) * (double{values[i]} - decoded[i]);
      }
      EXPECT_GT(signal, 300.0 * noise) << text << " " << DTypeName(dtype);
    }
  }
}

// A cache of packed values and scales beside a latent one: two geometries, two frames.
// Case A08: a frame's encoder tells how many of its values were beyond what fp8 can express.
TEST(Fp8Frames, ClampedValuesAreCounted) {
  const auto geometry = MakeGeometry(DType::kFloat32, {{2, 80, 80}, {1, 576, 0}});
  KvBuffer chunk;
  ASSERT_TRUE(chunk.Resize(geometry, {0, 300}, 300));
  std::uint64_t beyond = 0;
  std::uint64_t i = 0;
  for (const auto& layer : chunk.view().layers) {
    for (const auto& plane : {layer.k, layer.v}) {
      if (plane.data == nullptr) continue;
      for (std::uint64_t j = 0; j < plane.values(); ++j, ++i) {
        const float value = i % 97 == 0 ? -1e6F : i % 89 == 0 ? 464.0F : 1.0F;
        std::memcpy(plane.data + j * sizeof(value), &value, sizeof(value));
        if (value < 0) ++beyond;  // 464 rounds to 448
      }
    }
  }
  for (const std::uint32_t threads : {1U, 3U}) {
    const auto clamped = [&](std::string_view text) {
      FrameEncoder encoder =
          FrameEncoder::Create(ParseProfile(text).value(), {.threads = threads}).value();
      EXPECT_EQ(encoder.clamped_values(), 0U);
      std::vector<std::byte> frame;
      EXPECT_TRUE(encoder.Encode(ViewOf(chunk), {}, frame)) << text;
      EXPECT_TRUE(encoder.Encode(ViewOf(chunk), {}, frame)) << text;  // of the last frame alone
      return encoder.clamped_values();
    };
    EXPECT_EQ(clamped("fp8:scale=none"), beyond);
    EXPECT_EQ(clamped("fp8:scale=none|zstd"), beyond);
    for (const char* text : {"fp8", "fp8:scale=float", "uniform|rans", "lossless", "none"}) {
      EXPECT_EQ(clamped(text), 0U) << text;
    }
    EXPECT_GT(clamped("delta|fp8:scale=none"), 0U);  // coded in sequence, with feedback
  }
}

TEST(OpaqueCache, IndexerRegionsAreRestoredBesideTheLatent) {
  constexpr std::uint32_t kTokens = 256;
  const std::vector<LayerShape> latent(61, {1, 576, 0});
  const std::vector<LayerShape> indexer(61, {1, 132, 0});
  for (const char* text : {"none", "lossless", "none|zstd"}) {
    const KvBuffer first =
        testing::MakeRandomBits(MakeGeometry(DType::kBFloat16, latent), {0, kTokens});
    const KvBuffer second =
        testing::MakeRandomBits(MakeGeometry(DType::kUint8, indexer), {0, kTokens});
    EXPECT_EQ(Difference(ViewOf(first), ViewOf(Decode(Encode(text, ViewOf(first))))), "");
    EXPECT_EQ(Difference(ViewOf(second), ViewOf(Decode(Encode(text, ViewOf(second))))), "");
  }
}

TEST(SinglePlaneCache, IsTakenByEveryQuantizer) {
  const KvBuffer chunk =
      testing::MakeChunk(MakeGeometry(DType::kBFloat16, {{1, 576, 0}, {1, 576, 0}}), {0, 33});
  for (const char* text : {"none", "lossless", "uniform:levels=16|rans", "fp8|rans",
                           "hadamard|uniform:k_levels=16,v_levels=16,reconstruct=mean|rans"}) {
    const KvBuffer decoded = Decode(Encode(text, ViewOf(chunk)));
    EXPECT_EQ(decoded.geometry(), chunk.geometry()) << text;
    EXPECT_EQ(ViewOf(decoded).layers[1].v.data, nullptr);
  }
  std::vector<std::byte> frame;
  const auto split =
      EncodeFrame(ViewOf(chunk), ParseProfile("uniform:v_levels=4|rans").value(), {}, frame);
  ASSERT_FALSE(split.has_value());
  EXPECT_THAT(split.error().message, HasSubstr("v_levels"));
}

}  // namespace
}  // namespace kvserve
