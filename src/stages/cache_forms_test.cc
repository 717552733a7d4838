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
    // The same bytes, sent as another type, are another frame.
    KvBuffer other;
    const DType another = dtype == kFp8Types[0] ? kFp8Types[1] : kFp8Types[0];
    ASSERT_TRUE(other.Resize(MakeGeometry(another, {{1, 64, 64}}), {0, 4}, 4));
    std::memcpy(other.view().layers[0].k.data, chunk.view().layers[0].k.data, 256);
    std::memcpy(other.view().layers[0].v.data, chunk.view().layers[0].v.data, 256);
    EXPECT_NE(Difference(ViewOf(other), ViewOf(Decode(Encode("none", ViewOf(chunk))))), "");
    // Real quantizers refuse the NaN among the bytes and take them without.
    std::vector<std::byte> frame;
    const auto nan = EncodeFrame(ViewOf(chunk), ParseProfile("uniform|rans").value(), {}, frame);
    EXPECT_EQ(nan.error().code, ErrorCode::kBadInput);
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
