#include "evaluation/speed/repetitions.h"

#include <gtest/gtest.h>

#include "evaluation/speed/memory_speed.h"

namespace kvserve {
namespace {

TEST(MeasureRate, GoesRoundTheItemsInOrder) {
  std::vector<std::size_t> seen;
  const auto rate = MeasureRate(2, 0.0, [&](std::size_t i) -> Result<std::uint64_t> {
    seen.push_back(i);
    return 1000;
  });
  ASSERT_TRUE(rate);
  EXPECT_EQ(seen, (std::vector<std::size_t>{0, 1, 0})) << "few repetitions, of one item each";
  EXPECT_GT(rate->median_bytes_per_s, 0.0);
}

TEST(MeasureRate, StopsAtAFault) {
  int calls = 0;
  const auto rate = MeasureRate(3, 0.0, [&](std::size_t i) -> Result<std::uint64_t> {
    ++calls;
    if (i == 1) return MakeError(ErrorCode::kCorruptData, "item 1");
    return 1;
  });
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().message, "item 1");
  EXPECT_EQ(calls, 2);
}

TEST(MeasureMemcpy, CopiesAllPartsOfAnOddSize) {
  EXPECT_TRUE(MeasureMemcpy(1'000'003, 3, 0.0));
  EXPECT_TRUE(MeasureMemcpy(1, 2, 0.0)) << "some threads have no part";
  EXPECT_FALSE(MeasureMemcpy(0, 1, 0.0));
}

}  // namespace
}  // namespace kvserve
