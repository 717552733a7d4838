#include "base/token_ranges.h"

#include <gtest/gtest.h>

namespace kvserve {
namespace {

TEST(TokenRanges, MarkedTokensThatMeetAreOneRange) {
  std::vector<TokenRange> ranges;
  const auto append = [&](std::vector<std::uint8_t> flags, std::uint32_t begin) {
    AppendMarked(flags, begin, ranges);
  };
  append({0, 0}, 0);
  EXPECT_TRUE(ranges.empty());
  append({1, 1, 0, 1}, 10);
  append({1, 0, 0}, 14);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].begin, 10U);
  EXPECT_EQ(ranges[0].end, 12U);
  EXPECT_EQ(ranges[1].begin, 13U);
  EXPECT_EQ(ranges[1].end, 15U);
}

}  // namespace
}  // namespace kvserve
