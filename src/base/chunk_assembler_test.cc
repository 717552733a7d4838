#include "kvserve/chunk_assembler.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace kvserve {
namespace {

KvGeometry Geometry() {
  KvGeometry geometry;
  geometry.layers = {{.kv_heads = 2, .k_dim = 3, .v_dim = 5},
                     {.kv_heads = 1, .k_dim = 2, .v_dim = 0, .window_tokens = 4}};
  return geometry;
}

// Every element says which token it is of. All layers hold all tokens.
KvBuffer Tokens(TokenRange range) {
  KvBuffer buffer;
  const std::vector<KvBuffer::LayerTokens> layers = {{0, range}, {1, range}};
  EXPECT_TRUE(buffer.Resize(Geometry(), range, layers));
  for (const auto& layer : buffer.view().layers) {
    for (const PlaneView& plane : {layer.k, layer.v}) {
      for (std::uint64_t i = 0; plane.data != nullptr && i < plane.values(); ++i) {
        const auto token =
            static_cast<std::uint16_t>(range.begin + i / (std::uint64_t{plane.heads} * plane.dim));
        std::memcpy(plane.data + 2 * i, &token, 2);
      }
    }
  }
  return buffer;
}

void ExpectTokens(const ConstKvView& view, TokenRange range) {
  const KvBuffer buffer = Tokens(range);
  const ConstKvView wanted = buffer.view();
  ASSERT_TRUE(CheckView(view));
  EXPECT_EQ(view.tokens, range);
  for (std::size_t i = 0; i < view.layers.size(); ++i) {
    const auto& layer = wanted.layers[i];
    EXPECT_EQ(std::memcmp(view.layers[i].k.data, layer.k.data, 2 * layer.k.values()), 0);
    if (layer.v.data == nullptr) continue;
    EXPECT_EQ(std::memcmp(view.layers[i].v.data, layer.v.data, 2 * layer.v.values()), 0);
  }
}

class ChunkAssemblerTest : public ::testing::Test {
 protected:
  Status Append(TokenRange range) {
    const KvBuffer tokens = Tokens(range);
    return assembler_.Append(tokens.view(), [&](const ConstKvView& chunk) -> Status {
      ExpectTokens(chunk, {next_, next_ + 8});
      next_ += 8;
      ++taken_;
      if (fail_) return MakeError(ErrorCode::kUnavailable, "full disk");
      return {};
    });
  }

  ChunkAssembler assembler_ = std::move(*ChunkAssembler::Create(Geometry(), 8, 100));
  std::uint32_t next_ = 100;
  int taken_ = 0;
  bool fail_ = false;
};

TEST_F(ChunkAssemblerTest, GivesAChunkAsSoonAsItIsFull) {
  for (std::uint32_t token = 100; token < 120; ++token) {
    ASSERT_TRUE(Append({token, token + 1}));
    EXPECT_EQ(taken_, static_cast<int>(token + 1 - 100) / 8);
  }
  ExpectTokens(assembler_.rest(), {116, 120});
}

TEST_F(ChunkAssemblerTest, TakesManyTokensAtOnce) {
  ASSERT_TRUE(Append({100, 103}));
  ASSERT_TRUE(Append({103, 130}));
  EXPECT_EQ(taken_, 3);
  ExpectTokens(assembler_.rest(), {124, 130});
  ASSERT_TRUE(Append({130, 132}));
  EXPECT_TRUE(assembler_.rest().tokens.empty());
}

TEST_F(ChunkAssemblerTest, HandsOnTheErrorOfItsUser) {
  fail_ = true;
  const auto status = Append({100, 110});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "full disk");
  EXPECT_EQ(assembler_.rest().tokens, (TokenRange{108, 108}));
}

TEST_F(ChunkAssemblerTest, RefusesWhatDoesNotFollow) {
  ASSERT_TRUE(Append({100, 101}));
  EXPECT_FALSE(Append({100, 101}));
  EXPECT_FALSE(Append({102, 103}));
  KvBuffer windowed;  // layer 1 lacks tokens
  ASSERT_TRUE(windowed.Resize(Geometry(), {101, 107}, 107));
  const auto status =
      assembler_.Append(std::as_const(windowed).view(), [](const auto&) { return Status(); });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "layer 1 lacks some of the tokens");
  EXPECT_EQ(assembler_.rest().tokens, (TokenRange{100, 101}));
  EXPECT_FALSE(ChunkAssembler::Create(Geometry(), 0));
  EXPECT_FALSE(ChunkAssembler::Create(Geometry(), 2, kMaxTokens - 1));
}

}  // namespace
}  // namespace kvserve
