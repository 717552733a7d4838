#include "base/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <numeric>
#include <set>

#include "base/testing/address_space_limit.h"
#include "base/testing/sanitizers.h"

namespace kvserve {
namespace {

TEST(Workers, EveryItemRunsOnce) {
  for (const unsigned threads : {1U, 2U, 5U}) {
    Workers workers(threads);
    EXPECT_EQ(workers.threads(), threads);
    for (const std::size_t items : {0U, 1U, 2U, 100U}) {
      std::vector<std::atomic<int>> runs(items);
      ASSERT_TRUE(workers.Run(items, [&](std::size_t i, Arena& scratch) -> Status {
        const auto floats = scratch.Take<std::size_t>(100);
        std::iota(floats.begin(), floats.end(), i);
        runs[i] += floats[99] == i + 99 ? 1 : 100;
        return {};
      }));
      for (const auto& run : runs) EXPECT_EQ(run.load(), 1);
    }
  }
}

TEST(Workers, TheLowestErrorIsReportedAndTheNextRunIsClean) {
  Workers workers(3);
  for (int round = 0; round < 50; ++round) {
    const Status status = workers.Run(20, [](std::size_t i, Arena&) -> Status {
      if (i < 4) return {};
      return MakeError(ErrorCode::kCorruptData, std::to_string(i));
    });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "4");
    ASSERT_TRUE(workers.Run(20, [](std::size_t, Arena&) -> Status { return {}; }));
  }
}

TEST(Workers, NoItemStartsAfterAFailure) {
  Workers workers(1);
  std::set<std::size_t> started;
  EXPECT_FALSE(workers.Run(10, [&](std::size_t i, Arena&) -> Status {
    started.insert(i);
    if (i == 2) return MakeError(ErrorCode::kCorruptData, "two");
    return {};
  }));
  EXPECT_EQ(started.size(), 3U);
}

TEST(Workers, LackOfMemoryIsAnErrorLikeAnyOther) {
  Workers workers(2);
  const Status status =
      workers.Run(4, [](std::size_t, Arena&) -> Status { throw std::bad_alloc(); });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
}

// The threads that did start must be ended, or std::thread ends the program.
TEST(Workers, AThreadThatCannotStartIsAnException) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers need address space themselves";
  const testing::AddressSpaceLimit limit(std::ptrdiff_t{1} << 25);  // a few stacks
  EXPECT_THROW(Workers(256), std::exception);
}

}  // namespace
}  // namespace kvserve
