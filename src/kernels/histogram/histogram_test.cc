#include "kernels/histogram/histogram.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

std::vector<std::uint8_t> Random(std::size_t count, std::uint32_t alphabet) {
  std::mt19937 random(static_cast<unsigned>(count + alphabet));
  std::vector<std::uint8_t> symbols(count);
  for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(random() % alphabet);
  return symbols;
}

TEST(Histogram, MatchesTheOracle) {
  ForEachIsa([] {
    for (const std::uint32_t alphabet : {1U, 2U, 7U, 8U, 9U, 16U, 30U, 32U, 33U, 255U, 256U}) {
      for (const std::size_t count : {0, 1, 15, 16, 63, 64, 65, 16319, 16320, 40000}) {
        const auto symbols = Random(count, alphabet);
        ASSERT_EQ(CountSymbols(symbols, alphabet), CountSymbolsRef(symbols))
            << alphabet << " " << count;
      }
    }
  });
}

// 255 vectors of one symbol fill a counter to its limit.
TEST(Histogram, CountsRunsOfOneSymbol) {
  const std::vector<std::uint8_t> symbols(100000, 5);
  ForEachIsa([&] { ASSERT_EQ(CountSymbols(symbols, 6)[5], 100000U); });
}

TEST(Histogram, CountsSymbolsOutsideOfTheAlphabet) {
  auto symbols = Random(5000, 8);
  symbols[100] = 77;
  symbols.back() = 200;
  ForEachIsa([&] { ASSERT_EQ(CountSymbols(symbols, 8), CountSymbolsRef(symbols)); });
}

}  // namespace
}  // namespace kvserve
