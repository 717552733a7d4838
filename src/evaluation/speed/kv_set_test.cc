#include "evaluation/speed/kv_set.h"

#include <gtest/gtest.h>

#include <set>

#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

KvBuffer Request() {
  return testing::MakeChunk(testing::MakeGeometry(DType::kFloat16, {{2, 8, 8}, {1, 4, 6, 5}}),
                            {0, 20});
}

TEST(KvSet, HasSoManyCopiesThatALapIsLong) {
  const KvBuffer request = Request();
  const std::uint64_t raw_bytes = RawBytes(request.view());
  const auto set = KvSet::Create("x", Request(), 20, 3 * raw_bytes + 1);
  ASSERT_TRUE(set);
  const auto chunks = set->Chunks(kMaxTokens);
  ASSERT_EQ(chunks.size(), 4U);
  std::set<const std::byte*> memory;
  for (const ConstKvView& chunk : chunks) {
    EXPECT_EQ(testing::Difference(set->request(), chunk), "");
    memory.insert(chunk.layers[0].k.data);
  }
  EXPECT_EQ(memory.size(), 4U) << "copies share memory";
}

TEST(KvSet, ChunksCoverEachCopyOnce) {
  const auto set = KvSet::Create("x", Request(), 20, 1);
  ASSERT_TRUE(set);
  const auto chunks = set->Chunks(8);
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(chunks[0].tokens, (TokenRange{0, 8}));
  EXPECT_EQ(chunks[2].tokens, (TokenRange{16, 20}));
  std::uint64_t bytes = 0;
  for (const ConstKvView& chunk : chunks) {
    EXPECT_TRUE(CheckView(chunk));
    bytes += RawBytes(chunk);
  }
  EXPECT_EQ(bytes, RawBytes(set->request()));
}

TEST(KvSet, RefusesAnEmptyRequest) {
  KvBuffer empty;
  ASSERT_TRUE(empty.Resize(testing::MakeGeometry(DType::kFloat16, {{}}), {3, 3}, 3));
  const auto set = KvSet::Create("kv.safetensors", std::move(empty));
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, ErrorCode::kBadInput);
}

}  // namespace
}  // namespace kvserve
