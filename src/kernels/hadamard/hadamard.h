// Walsh-Hadamard transform with random signs over the head dimension, any length: the vector is
// split into parts of descending powers of two (80 = 64 + 16), each transformed on its own.
#pragma once

#include <cstdint>
#include <span>

#include "kvserve/geometry.h"

namespace kvserve {

// Fills `signs` [head, dim] with masks: 0x80000000 where the value is negated, else 0. They depend
// on the arguments alone; docs/FORMAT_STAGES.md states the hash.
void HadamardSigns(std::uint32_t seed, std::uint32_t layer, PlaneKind kind, std::uint32_t dim,
                   std::span<std::uint32_t> signs);

// In place on `values` [row, head, dim] (whole rows; `signs` is [head, dim]): negates by sign, then
// y = H (x / sqrt(n)) per part of n values, H in natural order. Orthonormal, so that Inverse undoes
// Forward up to rounding (relative error of a vector below 2^-20). Intermediate values stay within
// sqrt(n) times the largest input. Bit-identical on every instruction set: butterflies of stride
// n/2, n/4 .. 1, scaling first, no fused operations. O(n log n); allocates nothing.
void HadamardForward(std::span<float> values, std::span<const std::uint32_t> signs,
                     std::uint32_t dim);
// The same with the signs applied last.
void HadamardInverse(std::span<float> values, std::span<const std::uint32_t> signs,
                     std::uint32_t dim);

// Oracles.
void HadamardForwardRef(std::span<float> values, std::span<const std::uint32_t> signs,
                        std::uint32_t dim);
void HadamardInverseRef(std::span<float> values, std::span<const std::uint32_t> signs,
                        std::uint32_t dim);

}  // namespace kvserve
