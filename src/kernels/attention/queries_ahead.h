// Statistics of queries at positions that are still to come, from those before RoPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/arena.h"
#include "kernels/attention/pair_blocks.h"
#include "kvserve/geometry.h"

namespace kvserve {

// Averages of the rotations of all pairs of channels over positions evenly spaced from `first` to
// `last`. In the plane of a pair a rotation is a factor e^(i w p) with frequency w and position p.
class RotationAverages {
 public:
  static constexpr std::size_t kPositions = 32;

  // `dim` is even unless the style is kNone, which rotates nothing. Sines are the C library's in
  // double. Tables are in `arena`.
  RotationAverages(RopeStyle style, float theta, std::size_t dim, double first, double last,
                   Arena& arena);

  // mean = average of R(p) m and covariance = average of R(p) S R(p)^T over the positions p,
  // exactly but for rounding to float32. [dim] and symmetric [dim, dim], not in place.
  void Rotate(std::span<const float> m, std::span<const float> s, std::span<float> mean,
              std::span<float> covariance) const;

 private:
  struct Turn {
    double cosine = 1.0;  // times a length below 1
    double sine = 0.0;
  };
  // [pair a, pair b >= a]
  struct Turns {
    std::span<double> cosine;
    std::span<double> sine;
    void Set(std::size_t at, Turn turn) const;
    [[nodiscard]] TurnColumns Of(std::size_t first, std::size_t count) const;
  };
  [[nodiscard]] static Turn AverageTurn(double frequency, double first, double last);
  // Rows of the pair `a`, from its own block on.
  void RotateHalves(std::size_t a, std::span<const float> s, std::span<float> covariance) const;
  void RotateInterleaved(std::size_t a, std::span<const float> s,
                         std::span<float> covariance) const;
  [[nodiscard]] std::size_t FirstBlock(std::size_t a) const;

  RopeStyle style_;
  std::size_t dim_;
  std::span<Turn> alone_;  // [pair] of its frequency
  Turns difference_;       // of w_a - w_b
  Turns sum_;              // of w_a + w_b
};

}  // namespace kvserve
