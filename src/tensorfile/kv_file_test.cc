#include "tensorfile/kv_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tensorfile/testing/raw_file.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

// A layer of each sort: rotated, single plane, window with other K and V dims.
const KvGeometry kGeometry{DType::kBFloat16,
                           {{2, 8, 8, 0, RopeStyle::kHalves, 10000.5F},
                            {1, 12, 0},
                            {2, 6, 4, 16, RopeStyle::kInterleaved, 1e6F}}};

// Tokens [8, 40) of a request; every byte of the storage counts up.
KvBuffer CountingChunk() {
  KvBuffer buffer;
  EXPECT_TRUE(buffer.Resize(kGeometry, {8, 40}, 40));
  std::uint8_t next = 0;
  for (const auto& layer : buffer.view().layers) {
    for (const auto* plane : {&layer.k, &layer.v}) {
      for (std::uint64_t i = 0; i < plane->values() * 2; ++i) {
        plane->data[i] = static_cast<std::byte>(next++ * 7);
      }
    }
  }
  return buffer;
}

void ExpectEqual(const ConstKvView& a, const ConstKvView& b) {
  ASSERT_EQ(*a.geometry, *b.geometry);
  ASSERT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    ASSERT_EQ(a.layers[i].tokens, b.layers[i].tokens);
    const std::uint64_t k_bytes = a.layers[i].k.values() * 2;
    const std::uint64_t v_bytes = a.layers[i].v.values() * 2;
    EXPECT_EQ(std::memcmp(a.layers[i].k.data, b.layers[i].k.data, k_bytes), 0);
    if (v_bytes == 0) continue;
    EXPECT_EQ(std::memcmp(a.layers[i].v.data, b.layers[i].v.data, v_bytes), 0);
  }
}

TEST(KvFile, ReturnsGeometryTokensAndValues) {
  const TemporaryPath path("kv.safetensors");
  const KvBuffer chunk = CountingChunk();
  auto info = DescribeView(chunk.view());
  ASSERT_TRUE(info);
  info->model.bytes[0] = 0xAB;
  info->key.bytes[15] = 1;
  info->prompt_tokens = 41;
  ASSERT_TRUE(WriteKvFile(path.str(), chunk.view(), *info));

  const auto file = KvFileReader::Open(path.str());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->info().geometry, kGeometry);
  EXPECT_EQ(file->info().layer_tokens, info->layer_tokens);
  EXPECT_EQ(file->info().model, info->model);
  EXPECT_EQ(file->info().key, info->key);
  EXPECT_EQ(file->info().prompt_tokens, 41U);
  EXPECT_EQ(RawBytes(file->info()), RawBytes(chunk.view()));
  KvBuffer read;
  ASSERT_TRUE(file->Read({8, 40}, read));
  ExpectEqual(std::as_const(read).view(), chunk.view());
}

TEST(KvFile, OneByteTypesComeBackAsWhatTheyWere) {
  for (const DType dtype : {DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2,
                            DType::kFloat8E5M2FNUZ, DType::kUint8}) {
    const TemporaryPath path("kv.safetensors");
    KvBuffer chunk;
    ASSERT_TRUE(chunk.Resize({dtype, {{1, 8, 8}}}, {0, 5}, 5));
    for (int i = 0; i < 40; ++i) {
      chunk.view().layers[0].k.data[i] = static_cast<std::byte>(i * 7);
      chunk.view().layers[0].v.data[i] = static_cast<std::byte>(i * 11);
    }
    const ConstKvView view = std::as_const(chunk).view();
    const auto info = DescribeView(view);
    ASSERT_TRUE(info);
    ASSERT_TRUE(WriteKvFile(path.str(), view, *info));
    const auto file = KvFileReader::Open(path.str());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->info().geometry, *view.geometry) << DTypeName(dtype);
    KvBuffer read;
    ASSERT_TRUE(file->Read({0, 5}, read));
    const ConstKvView back = std::as_const(read).view();
    EXPECT_EQ(std::memcmp(back.layers[0].k.data, view.layers[0].k.data, 40), 0);
    EXPECT_EQ(std::memcmp(back.layers[0].v.data, view.layers[0].v.data, 40), 0);
  }
}

TEST(KvFile, PiecesMakeTheWhole) {
  const TemporaryPath whole("whole.safetensors");
  const TemporaryPath joined("joined.safetensors");
  const KvBuffer chunk = CountingChunk();
  const auto info = DescribeView(chunk.view());
  ASSERT_TRUE(WriteKvFile(whole.str(), chunk.view(), *info));
  const auto file = KvFileReader::Open(whole.str());
  ASSERT_TRUE(file);
  auto writer = KvFileWriter::Create(joined.str(), *info);
  ASSERT_TRUE(writer);
  KvBuffer piece;
  for (const TokenRange tokens : {TokenRange{30, 40}, TokenRange{8, 20}, TokenRange{20, 30}}) {
    EXPECT_EQ(writer->Commit().error().code, ErrorCode::kInvalidArgument);
    ASSERT_TRUE(file->Read(tokens, piece));
    ASSERT_TRUE(writer->Write(std::as_const(piece).view()));
  }
  EXPECT_EQ(writer->Write(std::as_const(piece).view()).error().code, ErrorCode::kMismatch);
  ASSERT_TRUE(writer->Commit());
  KvBuffer read;
  ASSERT_TRUE(KvFileReader::Open(joined.str())->Read({8, 40}, read));
  ExpectEqual(std::as_const(read).view(), chunk.view());
}

TEST(KvFile, WritesAnyStrides) {
  const TemporaryPath path("strided.safetensors");
  const KvGeometry geometry{DType::kFloat16, {{2, 3, 0}}};
  const std::uint16_t by_head[2][3][4] = {{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}},
                                          {{12, 13, 14, 15}, {16, 17, 18, 19}, {20, 21, 22, 23}}};
  ConstPlaneView plane;  // stored [head, dim, token]
  plane.data = reinterpret_cast<const std::byte*>(by_head);
  plane.tokens = 4;
  plane.heads = 2;
  plane.dim = 3;
  plane.token_stride = 1;
  plane.head_stride = 12;
  plane.dim_stride = 4;
  ConstKvView view;
  view.geometry = &geometry;
  view.tokens = {0, 4};
  view.layers = {{0, {0, 4}, plane, {}}};
  ASSERT_TRUE(WriteKvFile(path.str(), view, *DescribeView(view)));
  KvBuffer read;
  ASSERT_TRUE(KvFileReader::Open(path.str())->Read({1, 2}, read));
  std::uint16_t values[6];
  std::memcpy(values, read.view().layers[0].k.data, sizeof(values));
  EXPECT_THAT(values, ::testing::ElementsAre(1, 5, 9, 13, 17, 21));
}

// A file as other programs write it: tensors and no metadata.
std::string Tensor(const std::string& name, const std::string& shape, int begin, int end,
                   const std::string& dtype = "F16") {
  return std::string("\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(KvFile, NeedsNoMetadata) {
  const TemporaryPath path("bare.safetensors");
  WriteRawSafetensors(path.str(),
                      "{" + Tensor("v.0", "[2,1,4]", 0, 16) + "," +
                          Tensor("k.0", "[2,1,4]", 16, 32) + "," +
                          Tensor("rotary", "[1]", 32, 40, "I64") + "}",
                      40);
  const auto file = KvFileReader::Open(path.str());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->info().tokens, (TokenRange{0, 2}));
  EXPECT_EQ(file->info().geometry, (KvGeometry{DType::kFloat16, {{1, 4, 4}}}));
  EXPECT_TRUE(file->info().model.empty());
}

struct BadFile {
  std::string header;
  std::size_t data_bytes;
  const char* message;
};

class BadKvFileTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadKvFileTest, NamesTheFault) {
  const TemporaryPath path("bad.safetensors");
  WriteRawSafetensors(path.str(), "{" + GetParam().header + "}", GetParam().data_bytes);
  const auto file = KvFileReader::Open(path.str());
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr(GetParam().message));
  EXPECT_EQ(ExitStatus(file.error().code), 3) << file.error().message;
}

std::string WithMetadata(const std::string& key, const std::string& value) {
  return std::string("\"__metadata__\":{\"kvserve.") + key + "\":\"" + value + "\"}," +
         Tensor("k.0", "[1,1,2]", 0, 4);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadKvFileTest,
    ::testing::Values(
        BadFile{"", 0, "no tensors named"},
        BadFile{Tensor("v.0", "[1,1,2]", 0, 4), 4, "no tensor 'k.0'"},
        BadFile{Tensor("k.1", "[1,1,2]", 0, 4), 4, "no tensor 'k.0'"},
        BadFile{Tensor("k.4096", "[1,1,2]", 0, 4), 4, "layer is above 4095"},
        BadFile{Tensor("k.0", "[1,2]", 0, 4), 4, "has 2 axes"},
        BadFile{Tensor("k.0", "[1,1,0]", 0, 0), 0, "dim 0 is outside 1..65536"},
        BadFile{Tensor("k.0", "[1,0,1]", 0, 0), 0, "head 0 is outside 1..4096"},
        BadFile{Tensor("k.0", "[16777217,1,0]", 0, 0), 0, "token 16777217 is outside"},
        BadFile{Tensor("k.0", "[1,1,4]", 0, 4, "I8"), 4, "dtype I8 is not one of"},
        BadFile{Tensor("k.0", "[1,1,4]", 0, 4, "F8_E8M0"), 4, "dtype F8_E8M0 is not one of"},
        BadFile{Tensor("k.0", "[1,1,2]", 0, 4) + "," + Tensor("v.0", "[1,1,2]", 4, 8, "BF16"), 8,
                "'v.0' is BF16, 'k.0' is F16"},
        BadFile{Tensor("k.0", "[1,1,2]", 0, 4) + "," + Tensor("v.0", "[2,1,1]", 4, 8), 8,
                "other tokens or heads"},
        BadFile{Tensor("k.0", "[1,1,2]", 0, 4) + "," + Tensor("k.1", "[2,1,1]", 4, 8), 8,
                "layer 0 holds tokens 0..1"},
        BadFile{WithMetadata("layout", "head,token,dim"), 4, "kvserve.layout 'head,token,dim'"},
        BadFile{WithMetadata("dtype", "bfloat16"), 4, "kvserve.dtype 'bfloat16'"},
        BadFile{WithMetadata("dtype", "float8_e4m3fnuz"), 4, "kvserve.dtype 'float8_e4m3fnuz'"},
        BadFile{WithMetadata("model", "12zz"), 4, "kvserve.model '12zz' is not 32"},
        BadFile{WithMetadata("tokens", "[1,0]"), 4, "kvserve.tokens is not a range"},
        BadFile{WithMetadata("tokens", "[0,9223372036854775808]"), 4,
                "kvserve.tokens has an entry"},
        BadFile{WithMetadata("first_token", "[0,0]"), 4, "not a JSON list of 1"},
        BadFile{WithMetadata("first_token", "[16777216]"), 4, "not a range within"},
        BadFile{WithMetadata("rope_style", "[7]"), 4, "kvserve.rope_style has an entry"},
        BadFile{WithMetadata("rope_theta", "[1]"), 4, "rope_theta must be positive"},
        BadFile{WithMetadata("window", "[-1]"), 4, "kvserve.window has an entry"},
        BadFile{WithMetadata("prompt_tokens", "many"), 4, "kvserve.prompt_tokens 'many'"},
        BadFile{WithMetadata("windows", "[0]"), 4, "kvserve.windows is not a key"}));

TEST(KvFile, ReadsOnlyTokensThatItHas) {
  const TemporaryPath path("range.safetensors");
  const KvBuffer chunk = CountingChunk();
  ASSERT_TRUE(WriteKvFile(path.str(), chunk.view(), *DescribeView(chunk.view())));
  const auto file = KvFileReader::Open(path.str());
  KvBuffer out;
  EXPECT_EQ(file->Read({0, 10}, out).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(file->Read({10, 41}, out).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(file->Read({8, 20}, out));  // before the window layer's first token
  EXPECT_TRUE(out.view().layers[2].tokens.empty());
}

}  // namespace
}  // namespace kvserve
