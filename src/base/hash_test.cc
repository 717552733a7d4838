#include "base/hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvserve {
namespace {

// What the xxHash project publishes for no bytes: XXH3, 64 and 128 bits, seed 0.
TEST(Hash, IsXxh3InItsUsualNotation) {
  EXPECT_EQ(Hash64({}), 0x2D06800538D394C2U);
  EXPECT_EQ(Hash128({}).hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, DependsOnBytesAndSeed) {
  const std::byte one[] = {std::byte{1}};
  EXPECT_NE(Hash64(one), Hash64({}));
  EXPECT_NE(Hash64(one, 1), Hash64(one));
  EXPECT_NE(Hash128(one, 1), Hash128(one));
}

TEST(Hash, OfPartsIsThatOfTheWhole) {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  const std::span<const std::byte> all(bytes);
  EXPECT_EQ(Hash64(all.first(26), all.subspan(26, 8), all.subspan(34)), Hash64(all));
  EXPECT_EQ(Hash64(all, {}, {}), Hash64(all));
}

}  // namespace
}  // namespace kvserve
