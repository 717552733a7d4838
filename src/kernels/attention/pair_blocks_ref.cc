#include "kernels/attention/pair_blocks.h"

namespace kvserve {
namespace {

struct Factor {
  double real;
  double imaginary;
};

Factor Product(Factor a, double cosine, double sine) {
  return {a.real * cosine - a.imaginary * sine, a.real * sine + a.imaginary * cosine};
}

}  // namespace

void TurnPairBlocksRef(const PairBlocks<const float>& in, const TurnColumns& difference,
                       const TurnColumns& sum, const PairBlocks<float>& out) {
  for (std::size_t k = 0; k < sum.cosine.size(); ++k) {
    const double xx = in.xx[k];
    const double xy = in.xy[k];
    const double yx = in.yx[k];
    const double yy = in.yy[k];
    const Factor u =
        Product({(xx + yy) / 2, (yx - xy) / 2}, difference.cosine[k], difference.sine[k]);
    const Factor w = Product({(xx - yy) / 2, (yx + xy) / 2}, sum.cosine[k], sum.sine[k]);
    out.xx[k] = static_cast<float>(u.real + w.real);
    out.xy[k] = static_cast<float>(w.imaginary - u.imaginary);
    out.yx[k] = static_cast<float>(u.imaginary + w.imaginary);
    out.yy[k] = static_cast<float>(u.real - w.real);
  }
}

}  // namespace kvserve
