#include "engine/llama/rope_fit.h"

#include <cmath>
#include <cstddef>

namespace kvserve {
namespace {

constexpr double kTolerance = 1e-3;

struct PairLayout {
  std::size_t first_step;  // index of pair i's first channel is i * first_step
  std::size_t distance;    // of its second channel from the first
};

PairLayout LayoutOf(RopeStyle style, std::size_t dim) {
  return style == RopeStyle::kInterleaved ? PairLayout{2, 1} : PairLayout{1, dim / 2};
}

double NormRatio(double residual, double norm) {
  return norm > 0 ? std::sqrt(residual / norm) : (residual > 0 ? 1.0 : 0.0);
}

double Unrotated(std::span<const float> before, std::span<const float> after) {
  double residual = 0;
  double norm = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    residual += std::pow(double{before[i]} - after[i], 2);
    norm += std::pow(double{after[i]}, 2);
  }
  return NormRatio(residual, norm);
}

double Rotated(std::span<const float> before, std::span<const float> after, std::size_t heads,
               std::size_t dim, RopeStyle style, double theta) {
  const PairLayout layout = LayoutOf(style, dim);
  const std::size_t vectors = after.size() / dim;
  double residual = 0;
  double norm = 0;
  for (std::size_t vector = 0; vector < vectors; ++vector) {
    const std::size_t token = vector / heads;
    const auto position = static_cast<double>(token);
    for (std::size_t pair = 0; pair < dim / 2; ++pair) {
      const double angle =
          position * std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(dim));
      const std::size_t first = vector * dim + pair * layout.first_step;
      const std::size_t second = first + layout.distance;
      const double a = before[first] * std::cos(angle) - before[second] * std::sin(angle);
      const double b = before[first] * std::sin(angle) + before[second] * std::cos(angle);
      residual += std::pow(a - after[first], 2) + std::pow(b - after[second], 2);
      norm += std::pow(double{after[first]}, 2) + std::pow(double{after[second]}, 2);
    }
  }
  return NormRatio(residual, norm);
}

}  // namespace

std::optional<RopeFit> FitRope(std::span<const float> before, std::span<const float> after,
                               std::uint32_t heads, std::uint32_t dim, float theta) {
  const std::size_t token = std::size_t{heads} * dim;
  if (token == 0 || before.size() != after.size() || after.size() % token != 0 ||
      after.size() < 2 * token) {
    return std::nullopt;
  }
  if (Unrotated(before, after) <= kTolerance) return RopeFit{};
  if (dim % 2 != 0 || !(theta > 0)) return std::nullopt;
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves}) {
    if (Rotated(before, after, heads, dim, style, theta) <= kTolerance)
      return RopeFit{style, theta};
  }
  return std::nullopt;
}

}  // namespace kvserve
