#include "net/pacer.h"

#include <gtest/gtest.h>

namespace kvserve {
namespace {

using std::chrono::seconds;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

TEST(Pacer, BurstGoesAtOnceAndTheRestAtTheRate) {
  Pacer pacer(1000, 500);
  const auto now = Clock::now();
  EXPECT_LE(pacer.Reserve(500, now), now);
  EXPECT_NEAR(Seconds(pacer.Reserve(250, now) - now), 0.25, 1e-6);
  EXPECT_NEAR(Seconds(pacer.Reserve(1000, now) - now), 1.25, 1e-6);
}

TEST(Pacer, BucketRefillsToTheBurstAndNoFurther) {
  Pacer pacer(1000, 500);
  const auto now = Clock::now();
  EXPECT_LE(pacer.Reserve(500, now), now);
  const auto later = now + seconds(100);
  EXPECT_LE(pacer.Reserve(500, later), later);
  EXPECT_NEAR(Seconds(pacer.Reserve(1, later) - later), 0.001, 1e-6);
}

TEST(Pacer, LongRunMatchesTheRate) {
  Pacer pacer(2e6);
  const auto start = Clock::now();
  auto now = start;
  for (int i = 0; i < 1000; ++i) now = std::max(now, pacer.Reserve(16384, now));
  const double expected = (1000 * 16384.0 - Pacer::kDefaultBurstBytes) / 2e6;
  EXPECT_NEAR(Seconds(now - start), expected, 1e-3);
}

TEST(Pacer, NoRateMeansNoLimit) {
  Pacer pacer(0);
  const auto now = Clock::now();
  EXPECT_LE(pacer.Reserve(std::size_t{1} << 40, now), now);
}

}  // namespace
}  // namespace kvserve
