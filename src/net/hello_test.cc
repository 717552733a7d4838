#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "net/handshake.h"
#include "net/refusal.h"
#include "net/testing/allocation_watch.h"

namespace kvserve {
namespace {

using Bytes = std::vector<std::byte>;

Hello Sample(NodeRole role = NodeRole::kDecode) {
  Hello hello;
  hello.role = role;
  hello.epoch = 0x1122334455667788ULL;
  hello.model.bytes[0] = 0xAB;
  hello.geometry.dtype = DType::kBFloat16;
  hello.geometry.layers = {{3, 64, 64, 0, RopeStyle::kInterleaved, 100000.0F},
                           {1, 256, 256, 512, RopeStyle::kHalves, 10000.0F},
                           {1, 576, 0, 0, RopeStyle::kNone, 0.0F}};
  hello.stages = {{7, 1}, {2, 3}, {300, 1}};
  return hello;
}

Bytes Encoded(const Hello& hello) {
  Bytes bytes;
  EXPECT_TRUE(EncodeHello(hello, bytes).has_value());
  return bytes;
}

TEST(Hello, RoundTripsWithStagesInOrder) {
  const Hello hello = Sample();
  const Hello read = DecodeHello(Encoded(hello)).value();
  EXPECT_EQ(read.protocol, hello.protocol);
  EXPECT_EQ(read.version, hello.version);
  EXPECT_EQ(read.role, hello.role);
  EXPECT_EQ(read.epoch, hello.epoch);
  EXPECT_EQ(read.model, hello.model);
  EXPECT_EQ(read.geometry, hello.geometry);
  EXPECT_EQ(read.stages, (std::vector<StageVersion>{{2, 3}, {7, 1}, {300, 1}}));
}

TEST(Hello, EveryTruncationAndLeftoverIsCorrupt) {
  Bytes bytes = Encoded(Sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_EQ(DecodeHello(std::span(bytes).first(size)).error().code, ErrorCode::kCorruptData)
        << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_EQ(DecodeHello(bytes).error().code, ErrorCode::kCorruptData);
}

TEST(Hello, EveryBitFlipIsCorruptOrReadAsWritten) {
  const Bytes good = Encoded(Sample());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    testing::ResetLargestAllocation();
    const auto read = DecodeHello(bytes);
    EXPECT_LT(testing::LargestAllocation(), 2048U) << bit;
    if (read) {
      EXPECT_EQ(Encoded(*read), bytes) << bit;
    } else {
      EXPECT_EQ(read.error().code, ErrorCode::kCorruptData) << bit;
    }
  }
}

TEST(Hello, LargestHelloIsRead) {
  Hello hello = Sample();
  hello.geometry.layers.assign(kMaxLayers, hello.geometry.layers[0]);
  hello.stages.clear();
  for (std::uint16_t id = 1; id <= 4096; ++id) hello.stages.push_back({id, 1});
  const Bytes bytes = Encoded(hello);
  EXPECT_LT(bytes.size(), 100U * 1024);
  EXPECT_EQ(DecodeHello(bytes).value().geometry, hello.geometry);
}

TEST(Hello, OutOfRangeIsNotSent) {
  const auto refused = [](const std::function<void(Hello&)>& change) {
    Hello hello = Sample();
    change(hello);
    Bytes bytes;
    const auto status = EncodeHello(hello, bytes);
    return !status && status.error().code == ErrorCode::kInvalidArgument && bytes.empty();
  };
  EXPECT_FALSE(refused([](Hello&) {}));
  EXPECT_TRUE(refused([](Hello& h) { h.version = ""; }));
  EXPECT_TRUE(refused([](Hello& h) { h.version = "1.0\n"; }));
  EXPECT_TRUE(refused([](Hello& h) { h.version.assign(65, '1'); }));
  EXPECT_TRUE(refused([](Hello& h) { h.role = static_cast<NodeRole>(9); }));
  EXPECT_TRUE(refused([](Hello& h) { h.epoch = 0; }));
  EXPECT_TRUE(refused([](Hello& h) { h.geometry.layers.clear(); }));
  EXPECT_TRUE(refused([](Hello& h) { h.geometry.layers[1].k_dim = 0; }));
  EXPECT_TRUE(refused([](Hello& h) { h.stages.push_back({7, 2}); }));
}

// One row per field: how the peer differs, the error's code and the words that must appear.
struct Conflict {
  std::function<void(Hello&)> change;
  ErrorCode code;
  std::string here_and_there;
};

TEST(Negotiate, ConflictsNameTheFieldAndBothValues) {
  const Conflict rows[] = {
      {[](Hello& h) { h.protocol = 2; }, ErrorCode::kMismatch, "protocol 1 here, 2 there"},
      {[](Hello& h) { h.frame_version = 9; }, ErrorCode::kMismatch,
       "frame version 1 here, 9 there"},
      {[](Hello& h) { h.role = NodeRole::kDecode; }, ErrorCode::kMismatch,
       "role decode here, decode there"},
      {[](Hello& h) { h.required_features = 0x14; }, ErrorCode::kUnsupported,
       "feature bits 0x0 understood here, 0x14 required there"},
      {[](Hello& h) { h.geometry.dtype = DType::kFloat16; }, ErrorCode::kMismatch,
       "dtype bfloat16 here, float16 there"},
      {[](Hello& h) { h.geometry.layers.pop_back(); }, ErrorCode::kMismatch,
       "geometry: layers 3 here, 2 there"},
      {[](Hello& h) { h.geometry.layers[0].kv_heads = 4; }, ErrorCode::kMismatch,
       "geometry: layer 0 kv_heads 3 here, 4 there"},
      {[](Hello& h) { h.geometry.layers[1].k_dim = 128; }, ErrorCode::kMismatch,
       "geometry: layer 1 k_dim 256 here, 128 there"},
      {[](Hello& h) { h.geometry.layers[2].v_dim = 1; }, ErrorCode::kMismatch,
       "geometry: layer 2 v_dim 0 here, 1 there"},
      {[](Hello& h) { h.geometry.layers[1].window_tokens = 0; }, ErrorCode::kMismatch,
       "geometry: layer 1 window_tokens 512 here, 0 there"},
      {[](Hello& h) { h.geometry.layers[0].rope_style = RopeStyle::kHalves; }, ErrorCode::kMismatch,
       "geometry: layer 0 rope_style 1 here, 2 there"},
      {[](Hello& h) { h.geometry.layers[0].rope_theta = 10000.0F; }, ErrorCode::kMismatch,
       "geometry: layer 0 rope_theta 100000"},
      {[](Hello& h) { h.model.bytes[0] = 0xCD; }, ErrorCode::kMismatch, "model fingerprint ab"},
  };
  const Hello local = Sample();
  for (const auto& row : rows) {
    Hello peer = Sample(NodeRole::kPrefill);
    row.change(peer);
    const auto agreement = Negotiate(local, peer);
    ASSERT_FALSE(agreement.has_value()) << row.here_and_there;
    EXPECT_EQ(agreement.error().code, row.code) << row.here_and_there;
    EXPECT_NE(agreement.error().message.find(row.here_and_there), std::string::npos)
        << agreement.error().message;
    // The other side must come to the same end, so that neither goes on alone.
    EXPECT_EQ(Negotiate(peer, local).error().code, row.code) << row.here_and_there;
  }
}

TEST(Negotiate, MissingStagesAreLeftOutNotRefused) {
  Hello peer = Sample(NodeRole::kPrefill);
  peer.stages = {{300, 1}, {7, 2}, {2, 3}, {9, 1}};
  const auto agreement = Negotiate(Sample(), peer).value();
  EXPECT_EQ(agreement.stages, (std::vector<StageVersion>{{2, 3}, {300, 1}}));
  EXPECT_EQ(agreement.peer.epoch, peer.epoch);
}

TEST(Negotiate, FeaturesAreWhatBothUnderstand) {
  Hello local = Sample();
  Hello peer = Sample(NodeRole::kPrefill);
  local.features = 0b0111;
  peer.features = 0b1101;
  peer.required_features = 0b0100;
  EXPECT_EQ(Negotiate(local, peer).value().features, 0b0101U);
}

TEST(Negotiate, StoresServeAnyModel) {
  Hello store = Sample(NodeRole::kStore);
  store.geometry.layers.clear();
  store.model = {};
  store = DecodeHello(Encoded(store)).value();
  for (const NodeRole role : {NodeRole::kPrefill, NodeRole::kDecode, NodeRole::kStore}) {
    EXPECT_TRUE(Negotiate(Sample(role), store).has_value());
    EXPECT_TRUE(Negotiate(store, Sample(role)).has_value());
  }
}

TEST(Refusal, RoundTripsAndReadsFromBothSides) {
  const Refusal refusal{ErrorCode::kMismatch, "protocol", "2", "1"};
  Bytes bytes;
  EncodeRefusal(refusal, bytes);
  const Refusal read = DecodeRefusal(bytes).value();
  EXPECT_EQ(SenderError(refusal).message, "handshake: protocol 2 here, 1 there");
  EXPECT_EQ(ReceiverError(read).message,
            "handshake: protocol 1 here, 2 there (refused by the peer)");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeRefusal(std::span(bytes).first(size)).has_value()) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(DecodeRefusal(bytes).has_value());
}

TEST(Refusal, TextIsBoundedAndCannotForgeLogLines) {
  Bytes bytes;
  EncodeRefusal({ErrorCode::kMismatch, "a\nERROR all is lost\r\x1b[2J", std::string(9999, 'x'),
                 std::string(9999, 'y')},
                bytes);
  EXPECT_LE(bytes.size(), kMaxRefusalBytes);
  const std::string message = ReceiverError(DecodeRefusal(bytes).value()).message;
  for (const char c : message) EXPECT_GE(c, ' ');
}

TEST(Refusal, UnknownCodeOfALaterVersionIsAMismatch) {
  Bytes bytes;
  EncodeRefusal({static_cast<ErrorCode>(99), "something new", "", ""}, bytes);
  EXPECT_EQ(DecodeRefusal(bytes).value().code, ErrorCode::kMismatch);
}

}  // namespace
}  // namespace kvserve
