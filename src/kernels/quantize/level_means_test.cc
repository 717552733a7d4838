#include "kernels/quantize/level_means.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvserve {
namespace {

std::vector<std::byte> Written(const LevelMeans& means, std::size_t values) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  means.Write(values, writer);
  return bytes;
}

TEST(LevelMeans, AreReadInSteps) {
  LevelMeans means(4);
  for (int i = 0; i < 100; ++i) {
    means.Add(0, 0.25F);
    means.Add(1, 0.125F + (i % 2 == 0 ? 0.25F : -0.25F));
    means.Add(3, -0.5F);
  }
  const auto bytes = Written(means, 300);
  ASSERT_EQ(bytes.size(), 5U);
  Arena arena;
  ByteReader reader(bytes);
  const auto points = LevelMeans::Read(4, arena, reader);
  ASSERT_TRUE(points);
  EXPECT_EQ(reader.remaining(), 0U);
  ASSERT_EQ(points->size(), 256U);
  EXPECT_EQ((*points)[0], 0.25F);
  EXPECT_EQ((*points)[1], 1.125F);
  EXPECT_EQ((*points)[2], 2.0F);  // never seen
  EXPECT_EQ((*points)[3], 2.5F);
}

TEST(LevelMeans, AreLeftOutWhereTheyAreNotWorthTheirBytes) {
  LevelMeans means(16);
  for (int i = 0; i < 100; ++i) {
    means.Add(5, i % 2 == 0 ? 0.3F : -0.28F);
  }
  EXPECT_EQ(Written(means, 1000), std::vector<std::byte>{std::byte{0}});
  EXPECT_EQ(Written(means, 1000000).size(), 17U);
  EXPECT_EQ(Written(LevelMeans(2), 1000), std::vector<std::byte>{std::byte{0}});
}

TEST(LevelMeans, HostileBytesAreRefused) {
  Arena arena;
  for (const auto& bytes : {std::vector<std::byte>{}, std::vector<std::byte>{std::byte{2}},
                            std::vector<std::byte>(4, std::byte{1})}) {
    ByteReader reader(bytes);
    EXPECT_FALSE(LevelMeans::Read(4, arena, reader));
  }
}

}  // namespace
}  // namespace kvserve
