// A cache that grows one token at a time: what its frames cost beside one frame of everything.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/token_slice.h"
#include "evaluation/speed/synthetic_kv.h"
#include "kvserve/chunk_assembler.h"
#include "kvserve/codec.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kTokens = 1000;

// Wire bytes with everything that travels: header, ranges, tables, padding.
std::size_t WireBytes(const ConstKvView& view, const Profile& profile) {
  std::vector<std::byte> frame;
  const auto status = EncodeFrame(view, profile, {}, frame);
  EXPECT_TRUE(status) << status.error().message;
  return frame.size();
}

// Some layers of the synthetic shape; each costs the same.
KvBuffer Request() {
  KvGeometry geometry = LlamaGeometry();
  geometry.layers.resize(3);
  KvBuffer request;
  const auto status = MakeSyntheticKv(geometry, kTokens, request);
  EXPECT_TRUE(status) << status.error().message;
  return request;
}

std::size_t AppendedBytes(const ConstKvView& request, const Profile& profile,
                          std::uint32_t frame_tokens) {
  std::size_t bytes = 0;
  auto assembler = ChunkAssembler::Create(*request.geometry, frame_tokens);
  EXPECT_TRUE(assembler);
  for (std::uint32_t token = 0; token < kTokens; ++token) {
    const auto appended = assembler->Append(SliceTokens(request, {token, token + 1}),
                                            [&](const ConstKvView& chunk) -> Status {
                                              bytes += WireBytes(chunk, profile);
                                              return {};
                                            });
    EXPECT_TRUE(appended);
  }
  if (!assembler->rest().tokens.empty()) bytes += WireBytes(assembler->rest(), profile);
  return bytes;
}

TEST(OneTokenAppends, AreWithinFivePercentOfOneShot) {
  const KvBuffer request = Request();
  for (const char* text :
       {"hadamard|uniform:k_levels=16,v_levels=8|rans", "uniform|bitpack", "lossless"}) {
    const Profile profile = *ParseProfile(text);
    const auto one_shot = static_cast<double>(WireBytes(request.view(), profile));
    const auto appended = static_cast<double>(AppendedBytes(request.view(), profile, 256));
    EXPECT_LE(appended, 1.05 * one_shot) << text << ": " << appended / one_shot;
    EXPECT_GE(static_cast<double>(RawBytes(request.view())) / appended, 1.1) << text;
  }
}

// Why they are gathered: alone, each pays for a header and for the ranges of all channels.
TEST(OneTokenAppends, AreNotWorthAFrameEach) {
  const KvBuffer request = Request();
  const Profile profile = *ParseProfile("hadamard|uniform:k_levels=16,v_levels=8|rans");
  const ConstKvView token = SliceTokens(request.view(), {500, 501});
  EXPECT_GT(WireBytes(token, profile), RawBytes(token)) << WireBytes(token, profile);
}

}  // namespace
}  // namespace kvserve
