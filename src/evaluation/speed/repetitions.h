// The loop of a measurement.
#pragma once

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/try.h"
#include "evaluation/speed/rate.h"

namespace kvserve {

inline constexpr std::size_t kRepetitions = 9;     // wanted
inline constexpr std::size_t kFewRepetitions = 3;  // at least, however long one takes

// Calls step(i) for i = 0, 1, ... items - 1, 0, ...; it does the work of item i and gives its bytes
// as a Result. A repetition is as many items as fill its share of `seconds`, at least one.
template <typename Step>
[[nodiscard]] Result<Rate> MeasureRate(std::size_t items, double seconds, const Step& step) {
  std::vector<double> rates;
  std::size_t item = 0;
  double total_s = 0.0;
  while (rates.size() < kFewRepetitions || (rates.size() < kRepetitions && total_s < seconds)) {
    std::uint64_t bytes = 0;
    const auto start = Clock::now();
    double spent_s = 0.0;
    do {
      KVSERVE_ASSIGN(const std::uint64_t done, step(item));
      bytes += done;
      item = (item + 1) % items;
      spent_s = SecondsSince(start);
    } while (spent_s < seconds / kRepetitions);
    rates.push_back(BytesPerSecond(bytes, spent_s));
    total_s += spent_s;
  }
  return SummariseRates(std::move(rates));
}

}  // namespace kvserve
