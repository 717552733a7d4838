// 60 made-up tables for coding with a table per symbol: Laplace's distribution of integers around
// 127, whose mean size is 2^((t - 24) / 4) in table t.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>

#include "kernels/rans/context_tables.h"

namespace kvserve::testing {

using CodeFrequencies = std::array<RansTable, kContextTables>;

// Of |q| in proportion to theta^|q|.
inline double LaplaceTheta(std::size_t table) {
  // E|q| = 2 theta / (1 - theta^2)
  const double mean = std::exp2((static_cast<double>(table) - 24.0) / 4.0);
  return (std::sqrt(1.0 + mean * mean) - 1.0) / mean;
}

inline CodeFrequencies LaplaceTables() {
  CodeFrequencies tables{};
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const double theta = LaplaceTheta(t);
    double support = 1.0;
    int reach = 1;
    while (reach < 127 && std::pow(theta, reach + 1) > 2e-4) ++reach;
    for (int q = 1; q <= reach; ++q) support += 2.0 * std::pow(theta, q);
    int left = static_cast<int>(kRansTotal) - 1;
    tables[t][kContextEscape] = 1;
    for (int q = 1; q <= reach; ++q) {
      const double share = (kRansTotal - 2.0 * reach - 2.0) * std::pow(theta, q) / support;
      const auto frequency = static_cast<std::uint16_t>(1.0 + share);
      tables[t][127U - static_cast<std::size_t>(q)] = frequency;
      tables[t][127U + static_cast<std::size_t>(q)] = frequency;
      left -= 2 * frequency;
    }
    tables[t][127] = static_cast<std::uint16_t>(left);
  }
  return tables;
}

// A symbol of such a distribution, clamped to 0..254.
template <typename Random>
std::uint8_t LaplaceSymbol(std::size_t table, Random& random) {
  const double theta = LaplaceTheta(table);
  const auto uniform = [&] { return (static_cast<double>(random() >> 8) + 0.5) / 16777216.0; };
  const double zero = (1.0 - theta) / (1.0 + theta);
  if (uniform() < zero) return 127;
  const double size = 1.0 + std::floor(std::log(uniform()) / std::log(theta));
  const int q = static_cast<int>(std::fmin(size, 127.0));
  return static_cast<std::uint8_t>(random() % 2 == 0 ? 127 - q : 127 + q);
}

}  // namespace kvserve::testing
