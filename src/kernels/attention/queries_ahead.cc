#include "kernels/attention/queries_ahead.h"

#include <algorithm>
#include <cmath>

namespace kvserve {

// Of e^(i w p) over n evenly spaced p: a geometric series.
RotationAverages::Turn RotationAverages::AverageTurn(double frequency, double first, double last) {
  constexpr auto kCount = static_cast<double>(kPositions);
  const double half_step = frequency * (last - first) / (kCount - 1) / 2;
  const double sine = std::sin(half_step);
  const double length = std::fabs(sine) < 1e-8 ? std::cos(kCount * half_step) / std::cos(half_step)
                                               : std::sin(kCount * half_step) / (kCount * sine);
  const double middle = frequency * (first + last) / 2;
  return {length * std::cos(middle), length * std::sin(middle)};
}

RotationAverages::Turn RotationAverages::Product(Turn a, Turn b) {
  return {a.cosine * b.cosine - a.sine * b.sine, a.cosine * b.sine + a.sine * b.cosine};
}

RotationAverages::RotationAverages(RopeStyle style, float theta, std::size_t dim, double first,
                                   double last, Arena& arena)
    : style_(style), dim_(dim) {
  if (style == RopeStyle::kNone) return;
  const std::size_t pairs = dim / 2;
  const auto frequencies = arena.Take<double>(pairs);
  alone_ = arena.Take<Turn>(pairs);
  difference_ = arena.Take<Turn>(pairs * (pairs + 1) / 2);
  sum_ = arena.Take<Turn>(pairs * (pairs + 1) / 2);
  for (std::size_t a = 0; a < pairs; ++a) {
    frequencies[a] =
        std::pow(double{theta}, -2.0 * static_cast<double>(a) / static_cast<double>(dim));
    alone_[a] = AverageTurn(frequencies[a], first, last);
  }
  std::size_t at = 0;
  for (std::size_t a = 0; a < pairs; ++a) {
    for (std::size_t b = a; b < pairs; ++b, ++at) {
      difference_[at] = AverageTurn(frequencies[a] - frequencies[b], first, last);
      sum_[at] = AverageTurn(frequencies[a] + frequencies[b], first, last);
    }
  }
}

std::size_t RotationAverages::First(std::size_t pair) const {
  return style_ == RopeStyle::kInterleaved ? 2 * pair : pair;
}

std::size_t RotationAverages::Second(std::size_t pair) const {
  return style_ == RopeStyle::kInterleaved ? 2 * pair + 1 : pair + dim_ / 2;
}

// The 2 x 2 block of two pairs is a matrix that turns, factor u, plus one that turns a mirror
// image, factor w; R_a and R_b^T on its sides turn u by the difference of their angles and w by the
// sum.
void RotationAverages::Rotate(std::span<const float> m, std::span<const float> s,
                              std::span<float> mean, std::span<float> covariance) const {
  if (style_ == RopeStyle::kNone) {
    std::copy(m.begin(), m.end(), mean.begin());
    std::copy(s.begin(), s.end(), covariance.begin());
    return;
  }
  const auto put = [&](std::size_t row, std::size_t column, double value) {
    covariance[row * dim_ + column] = static_cast<float>(value);
    covariance[column * dim_ + row] = static_cast<float>(value);
  };
  std::size_t at = 0;
  for (std::size_t a = 0; a < dim_ / 2; ++a) {
    const std::size_t x = First(a);
    const std::size_t y = Second(a);
    const Turn turned = Product({m[x], m[y]}, alone_[a]);
    mean[x] = static_cast<float>(turned.cosine);
    mean[y] = static_cast<float>(turned.sine);
    for (std::size_t b = a; b < dim_ / 2; ++b, ++at) {
      const float* const row_x = s.data() + x * dim_;
      const float* const row_y = s.data() + y * dim_;
      const double xx = row_x[First(b)];
      const double xy = row_x[Second(b)];
      const double yx = row_y[First(b)];
      const double yy = row_y[Second(b)];
      const Turn u = Product({(xx + yy) / 2, (yx - xy) / 2}, difference_[at]);
      const Turn w = Product({(xx - yy) / 2, (yx + xy) / 2}, sum_[at]);
      put(x, First(b), u.cosine + w.cosine);
      put(x, Second(b), w.sine - u.sine);
      put(y, First(b), u.sine + w.sine);
      put(y, Second(b), u.cosine - w.cosine);
    }
  }
}

}  // namespace kvserve
