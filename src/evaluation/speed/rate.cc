#include "evaluation/speed/rate.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace kvserve {
namespace {

// Linear between the two nearest of the sorted values.
double Quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double BytesPerSecond(std::uint64_t bytes, double seconds) {
  return seconds > 0.0 ? static_cast<double>(bytes) / seconds : 0.0;
}

double CombinedBytesPerSecond(double encode_bytes_per_s, double decode_bytes_per_s) {
  if (encode_bytes_per_s <= 0.0 || decode_bytes_per_s <= 0.0) return 0.0;
  return 1.0 / (1.0 / encode_bytes_per_s + 1.0 / decode_bytes_per_s);
}

Rate SummariseRates(std::vector<double> bytes_per_s) {
  if (bytes_per_s.empty()) return {};
  std::sort(bytes_per_s.begin(), bytes_per_s.end());
  return {Quantile(bytes_per_s, 0.5), Quantile(bytes_per_s, 0.25), Quantile(bytes_per_s, 0.75)};
}

std::string RateText(double bytes_per_s) {
  constexpr std::array kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  std::size_t unit = 0;
  // 999.5 would be printed with four digits.
  while (bytes_per_s >= 999.5 && unit + 1 < kUnits.size()) {
    bytes_per_s /= 1000.0;
    ++unit;
  }
  const int digits = bytes_per_s < 9.995 ? 2 : bytes_per_s < 99.95 ? 1 : 0;
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, bytes_per_s, kUnits[unit]);
  return text.data();
}

}  // namespace kvserve
