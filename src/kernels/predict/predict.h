// Prediction of values by a multiple of a reference.
#pragma once

#include <span>

namespace kvserve {

struct Projection {
  double product = 0.0;  // sum of value * reference
  double energy = 0.0;   // sum of reference^2; product / energy is the best weight
};

// Adds to `sums` over two spans of one length. Bit-identical on every instruction set: in binary64,
// eight sums over the elements i mod 8, then ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)).
void AddProjection(std::span<const float> values, std::span<const float> reference,
                   Projection& sums);

// value = value - weight * reference and value = value + weight * reference, in place. The product
// is rounded before the sum; bit-identical on every instruction set.
void SubtractScaled(std::span<float> values, std::span<const float> reference, float weight);
void AddScaled(std::span<float> values, std::span<const float> reference, float weight);

// Oracles.
void AddProjectionRef(std::span<const float> values, std::span<const float> reference,
                      Projection& sums);
void SubtractScaledRef(std::span<float> values, std::span<const float> reference, float weight);
void AddScaledRef(std::span<float> values, std::span<const float> reference, float weight);

}  // namespace kvserve
