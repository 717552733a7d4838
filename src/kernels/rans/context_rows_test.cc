#include "kernels/rans/context_rows.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

TEST(ContextRows, MatchTheOraclesForEveryLength) {
  std::mt19937 random(1);
  ForEachIsa([&] {
    for (std::size_t count = 0; count < 300; count += 1 + count / 7) {
      std::vector<std::int8_t> columns(count);
      std::vector<std::uint8_t> symbols(count);
      for (auto& column : columns) column = static_cast<std::int8_t>(random());
      for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(random());
      std::vector<std::uint8_t> indices(count, 0xEE);
      std::vector<std::uint8_t> expected(count);
      for (const std::int32_t shift : {-128, -61, -1, 0, 1, 30, 127}) {
        ContextIndices(columns, shift, indices);
        ContextIndicesRef(columns, shift, expected);
        ASSERT_EQ(indices, expected) << shift;
      }
      EXPECT_EQ(SumSizes(symbols), SumSizesRef(symbols));
      EXPECT_TRUE(AllBelow(symbols, 256));
      for (auto& symbol : symbols) symbol %= 50;
      EXPECT_TRUE(AllBelow(symbols, 50));
      for (std::size_t i = 0; i < count; i += 37) {
        symbols[i] += 50;
        EXPECT_FALSE(AllBelow(symbols, 50)) << i;
        symbols[i] -= 50;
      }
    }
  });
}

}  // namespace
}  // namespace kvserve
