// The 2 x 2 blocks that pairs of channels have in a covariance, averaged over rotations.
#pragma once

#include <cstddef>
#include <span>

namespace kvserve {

// Averages of e^(i w p) over positions p: a cosine and a sine, each times a length below 1.
struct TurnColumns {
  std::span<const double> cosine;
  std::span<const double> sine;
};

// Element [k] of all four: the block [[xx, xy], [yx, yy]] of pair k with one and the same pair.
template <typename Real>
struct PairBlocks {
  Real* xx = nullptr;
  Real* xy = nullptr;
  Real* yx = nullptr;
  Real* yy = nullptr;
};

// out = average of R_a(p) in R_b(p)^T, as many blocks as there are turns: `difference` of the
// angles of a and b, `sum` of them. A block is a matrix that turns, factor u, plus one that turns a
// mirror image, factor w; the rotations on its sides turn u by the difference of their angles and w
// by the sum. In double, rounded to float32 at the end; bit-identical on every instruction set.
// Not in place.
void TurnPairBlocks(const PairBlocks<const float>& in, const TurnColumns& difference,
                    const TurnColumns& sum, const PairBlocks<float>& out);

// Oracle.
void TurnPairBlocksRef(const PairBlocks<const float>& in, const TurnColumns& difference,
                       const TurnColumns& sum, const PairBlocks<float>& out);

}  // namespace kvserve
