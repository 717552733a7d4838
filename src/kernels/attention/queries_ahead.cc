#include "kernels/attention/queries_ahead.h"

#include <algorithm>
#include <array>
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

void RotationAverages::Turns::Set(std::size_t at, Turn turn) const {
  cosine[at] = turn.cosine;
  sine[at] = turn.sine;
}

TurnColumns RotationAverages::Turns::Of(std::size_t first, std::size_t count) const {
  return {cosine.subspan(first, count), sine.subspan(first, count)};
}

RotationAverages::RotationAverages(RopeStyle style, float theta, std::size_t dim, double first,
                                   double last, Arena& arena)
    : style_(style), dim_(dim) {
  if (style == RopeStyle::kNone) return;
  const std::size_t pairs = dim / 2;
  const std::size_t blocks = pairs * (pairs + 1) / 2;
  const auto frequencies = arena.Take<double>(pairs);
  alone_ = arena.Take<Turn>(pairs);
  difference_ = {arena.Take<double>(blocks), arena.Take<double>(blocks)};
  sum_ = {arena.Take<double>(blocks), arena.Take<double>(blocks)};
  for (std::size_t a = 0; a < pairs; ++a) {
    frequencies[a] =
        std::pow(double{theta}, -2.0 * static_cast<double>(a) / static_cast<double>(dim));
    alone_[a] = AverageTurn(frequencies[a], first, last);
  }
  std::size_t at = 0;
  for (std::size_t a = 0; a < pairs; ++a) {
    for (std::size_t b = a; b < pairs; ++b, ++at) {
      difference_.Set(at, AverageTurn(frequencies[a] - frequencies[b], first, last));
      sum_.Set(at, AverageTurn(frequencies[a] + frequencies[b], first, last));
    }
  }
}

std::size_t RotationAverages::FirstBlock(std::size_t a) const {
  return a * (dim_ / 2) - a * (a - 1) / 2;  // a = 0: 0
}

void RotationAverages::RotateHalves(std::size_t a, std::span<const float> s,
                                    std::span<float> covariance) const {
  const std::size_t half = dim_ / 2;
  const std::size_t x = a * dim_ + a;
  const std::size_t y = x + half * dim_;
  const std::size_t at = FirstBlock(a);
  TurnPairBlocks({&s[x], &s[x + half], &s[y], &s[y + half]}, difference_.Of(at, half - a),
                 sum_.Of(at, half - a),
                 {&covariance[x], &covariance[x + half], &covariance[y], &covariance[y + half]});
}

void RotationAverages::RotateInterleaved(std::size_t a, std::span<const float> s,
                                         std::span<float> covariance) const {
  constexpr std::size_t kBlocks = 64;
  std::array<std::array<float, kBlocks>, 4> in;
  std::array<std::array<float, kBlocks>, 4> out;
  const std::size_t row = 2 * a * dim_;
  for (std::size_t b = a; b < dim_ / 2; b += kBlocks) {
    const std::size_t count = std::min(kBlocks, dim_ / 2 - b);
    const auto place = [&](std::size_t part, std::size_t k) {
      return row + part / 2 * dim_ + 2 * (b + k) + part % 2;
    };
    for (std::size_t part = 0; part < 4; ++part) {
      for (std::size_t k = 0; k < count; ++k) in[part][k] = s[place(part, k)];
    }
    const std::size_t at = FirstBlock(a) + b - a;
    TurnPairBlocks({in[0].data(), in[1].data(), in[2].data(), in[3].data()},
                   difference_.Of(at, count), sum_.Of(at, count),
                   {out[0].data(), out[1].data(), out[2].data(), out[3].data()});
    for (std::size_t part = 0; part < 4; ++part) {
      for (std::size_t k = 0; k < count; ++k) covariance[place(part, k)] = out[part][k];
    }
  }
}

// The covariance is symmetric: rows of a pair are found from its own block on, and copied to where
// they stand as columns.
void RotationAverages::Rotate(std::span<const float> m, std::span<const float> s,
                              std::span<float> mean, std::span<float> covariance) const {
  if (style_ == RopeStyle::kNone) {
    std::copy(m.begin(), m.end(), mean.begin());
    std::copy(s.begin(), s.end(), covariance.begin());
    return;
  }
  const bool interleaved = style_ == RopeStyle::kInterleaved;
  const std::size_t pairs = dim_ / 2;
  const std::size_t step = interleaved ? 2 : 1;       // from pair to pair
  const std::size_t apart = interleaved ? 1 : pairs;  // the channels of a pair
  for (std::size_t a = 0; a < pairs; ++a) {
    const std::size_t x = a * step;
    const std::size_t y = x + apart;
    const Turn turn = alone_[a];
    mean[x] = static_cast<float>(m[x] * turn.cosine - m[y] * turn.sine);
    mean[y] = static_cast<float>(m[x] * turn.sine + m[y] * turn.cosine);
    interleaved ? RotateInterleaved(a, s, covariance) : RotateHalves(a, s, covariance);
    covariance[x * dim_ + y] = covariance[y * dim_ + x];
    for (const std::size_t row : {x, y}) {
      for (std::size_t b = a + 1; b < pairs; ++b) {
        const std::size_t column = b * step;
        covariance[column * dim_ + row] = covariance[row * dim_ + column];
        covariance[(column + apart) * dim_ + row] = covariance[row * dim_ + column + apart];
      }
    }
  }
}

}  // namespace kvserve
