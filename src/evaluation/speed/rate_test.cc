#include "evaluation/speed/rate.h"

#include <gtest/gtest.h>

namespace kvserve {
namespace {

// A serving log once said "GB/s: 0.001" of a store that ran at 1.4 GB/s.
TEST(Rate, IsInBytesPerSecond) {
  constexpr std::uint64_t kBytes = 13'000ULL * 131'072;  // 13,000 tokens of Llama-3.1-8B
  const double rate = BytesPerSecond(kBytes, 1.217);
  EXPECT_NEAR(rate, 1.4e9, 0.001e9);
  EXPECT_EQ(RateText(rate), "1.40 GB/s");
  EXPECT_EQ(BytesPerSecond(0, 1.0), 0.0);
  EXPECT_EQ(BytesPerSecond(1, 0.0), 0.0) << "and not infinity";
  EXPECT_EQ(BytesPerSecond(std::uint64_t{1} << 60, 1.0), 0x1p60);
}

TEST(Rate, TextKeepsThreeDigitsAndTheUnit) {
  EXPECT_EQ(RateText(0.0), "0.00 B/s");
  EXPECT_EQ(RateText(999.0), "999 B/s");
  EXPECT_EQ(RateText(999.6), "1.00 kB/s");
  EXPECT_EQ(RateText(1.4e6), "1.40 MB/s");
  EXPECT_EQ(RateText(87.54e6), "87.5 MB/s");
  EXPECT_EQ(RateText(99.96e6), "100 MB/s");
  EXPECT_EQ(RateText(999.6e6), "1.00 GB/s");
  EXPECT_EQ(RateText(13.26e9), "13.3 GB/s");
  EXPECT_EQ(RateText(2e15), "2000 TB/s");
}

// The serial cost of a profile: the harmonic sum, half of the harmonic mean.
TEST(Rate, CombinesEncodeAndDecode) {
  EXPECT_DOUBLE_EQ(CombinedBytesPerSecond(2e9, 2e9), 1e9);
  EXPECT_DOUBLE_EQ(CombinedBytesPerSecond(3e9, 6e9), 2e9);
  EXPECT_EQ(CombinedBytesPerSecond(0.0, 1e9), 0.0);
}

TEST(Rate, SummaryIsTheMedianWithItsQuartiles) {
  const Rate rate = SummariseRates({5.0, 1.0, 3.0, 2.0, 4.0});
  EXPECT_EQ(rate.median_bytes_per_s, 3.0);
  EXPECT_EQ(rate.low_bytes_per_s, 2.0);
  EXPECT_EQ(rate.high_bytes_per_s, 4.0);
  EXPECT_EQ(SummariseRates({1.0, 2.0}).median_bytes_per_s, 1.5);
  EXPECT_EQ(SummariseRates({7.0}).high_bytes_per_s, 7.0);
  EXPECT_EQ(SummariseRates({}).median_bytes_per_s, 0.0);
}

}  // namespace
}  // namespace kvserve
