#include "evaluation/speed/kv_error.h"

#include <cmath>
#include <vector>

#include "base/try.h"
#include "pipeline/plane_floats.h"

namespace kvserve {
namespace {

struct Sums {
  double signal = 0.0;
  double noise = 0.0;

  [[nodiscard]] double Relative() const { return noise == 0.0 ? 0.0 : std::sqrt(noise / signal); }
};

Status AddPlane(const ConstPlaneView& original, const ConstPlaneView& decoded, Sums& sums) {
  if (original.values() != decoded.values()) {
    return MakeError(ErrorCode::kInvalidArgument, "the planes have different shapes");
  }
  if (original.data == nullptr) return {};
  std::vector<float> a(original.values());
  std::vector<float> b(a.size());
  LoadFloats(original, a);
  LoadFloats(decoded, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    sums.signal += double{a[i]} * double{a[i]};
    sums.noise += difference * difference;
  }
  return {};
}

}  // namespace

Result<KvError> MeasureError(const ConstKvView& original, const ConstKvView& decoded) {
  if (original.layers.size() != decoded.layers.size()) {
    return MakeError(ErrorCode::kInvalidArgument, "the numbers of layers differ");
  }
  Sums k;
  Sums v;
  for (std::size_t i = 0; i < original.layers.size(); ++i) {
    KVSERVE_TRY(AddPlane(original.layers[i].k, decoded.layers[i].k, k));
    KVSERVE_TRY(AddPlane(original.layers[i].v, decoded.layers[i].v, v));
  }
  return KvError{k.Relative(), v.Relative()};
}

}  // namespace kvserve
