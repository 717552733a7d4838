#include <algorithm>
#include <cmath>

#include "kernels/rotate/rope_series.h"
#include "kernels/rotate/rotate.h"

namespace kvserve {
namespace {

constexpr double kSqrtHalf = 0.7071067811865476;
constexpr double kTwoOverLn2 = 2.8853900817779268;
constexpr double kLn2 = 0.6931471805599453;
constexpr double kPerRadian = 0.15915494309189535;  // 1 / (2 pi)

// 2 artanh((m - 1) / (m + 1)) = ln m, m within sqrt(1/2)..sqrt(2).
double Log2(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double w = s * s;
  double sum = 1.0 / 21;
  for (int k = 19; k >= 1; k -= 2) sum = sum * w + 1.0 / k;
  return exponent + sum * s * kTwoOverLn2;
}

double Exp2(double x) {
  const double whole = std::floor(x + 0.5);
  const double z = (x - whole) * kLn2;
  double sum = 1;
  for (int k = 13; k >= 1; --k) sum = sum * z / k + 1;
  return std::ldexp(sum, static_cast<int>(whole));
}

}  // namespace

std::size_t RopePairs(std::uint32_t dim) {
  return (dim / 2 + kRopePadding - 1) / kRopePadding * kRopePadding;
}

void RopeTurns(float theta, std::uint32_t dim, std::span<std::uint64_t> turns) {
  const double log_theta = Log2(double{theta});
  std::fill(turns.begin(), turns.end(), std::uint64_t{0});
  for (std::uint32_t i = 0; i < dim / 2; ++i) {
    const double frequency = Exp2(-(2.0 * i * log_theta) / dim);
    const double circles = frequency * kPerRadian;
    turns[i] = static_cast<std::uint64_t>((circles - std::floor(circles)) * 0x1p64);
  }
}

}  // namespace kvserve
