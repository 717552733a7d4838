#include <algorithm>
#include <cmath>
#include <vector>

#include "base/try.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/toy_factories.h"

namespace kvserve::testing {
namespace {

struct Loudness final : SelectorMemory {
  double total = 0.0;
  double tokens = 0.0;
};

// A token weighs 4 where it is louder than the mean of all tokens so far, else 1.
class ToyWeigh final : public Selector {
 public:
  Status Weigh(const FrameContext& /*frame*/, const ConstKvView& view, SelectorMemory* memory,
               std::span<std::vector<float>> weights) const override {
    Loudness alone;
    Loudness& past = memory == nullptr ? alone : static_cast<Loudness&>(*memory);
    const auto planes = CodingOrder(view);
    for (std::size_t p = 0; p < planes.size(); ++p) {
      std::vector<float> values(planes[p].view.values());
      LoadFloats(planes[p].view, values);
      const std::size_t columns = std::size_t{planes[p].view.heads} * planes[p].view.dim;
      for (std::size_t t = 0; t < weights[p].size(); ++t) {
        double loudness = 0.0;
        for (std::size_t c = 0; c < columns; ++c) loudness += std::abs(values[t * columns + c]);
        past.total += loudness / static_cast<double>(columns);
        past.tokens += 1.0;
        if (loudness / static_cast<double>(columns) * past.tokens > past.total) weights[p][t] *= 4;
      }
    }
    return {};
  }
  std::unique_ptr<SelectorMemory> NewMemory() const override {
    return std::make_unique<Loudness>();
  }
};

// Divides by the factor of K or V and by the plane's largest magnitude, a side float.
class ToyScale final : public Transform {
 public:
  explicit ToyScale(const Settings& settings) : settings_(settings) {}

  Status Forward(const PlaneContext& plane, RealPlane values, ByteWriter& side) const override {
    float gain = 0.0F;
    for (const float value : values.span()) gain = std::max(gain, std::abs(value));
    if (gain == 0.0F) gain = 1.0F;
    side.Put(gain);
    for (float& value : values.span()) value /= gain * Factor(plane);
    return {};
  }
  Status Inverse(const PlaneContext& plane, RealPlane values, ByteReader& side) const override {
    KVSERVE_ASSIGN(const float gain, side.Get<float>());
    for (float& value : values.span()) value *= gain * Factor(plane);
    return {};
  }

 private:
  float Factor(const PlaneContext& plane) const {
    return static_cast<float>(settings_.value(1, plane.kind));
  }
  Settings settings_;
};

// Subtracts the mean of the decoded K and V of the layer before, and for V also of this layer's K.
// The number of planes used is a side byte, so that a missing or extra plane is noticed.
class ToyPredict final : public Transform {
 public:
  bool needs_feedback() const override { return true; }

  Status Forward(const PlaneContext& plane, RealPlane values, ByteWriter& side) const override {
    side.Put(static_cast<std::uint8_t>(Add(plane, values, -1.0F)));
    return {};
  }
  Status Inverse(const PlaneContext& plane, RealPlane values, ByteReader& side) const override {
    KVSERVE_ASSIGN(const auto used, side.Get<std::uint8_t>());
    if (Add(plane, values, 1.0F) == used) return {};
    return MakeError(ErrorCode::kCorruptData, "other planes were predicted from");
  }

 private:
  static std::size_t Add(const PlaneContext& plane, RealPlane values, float sign) {
    std::vector<const DecodedPlane*> sources;
    for (const DecodedPlane& earlier : plane.decoded) {
      const bool before = earlier.layer + 1 == plane.layer;
      const bool same = earlier.layer == plane.layer && earlier.kind != plane.kind;
      const bool fits =
          earlier.tokens == plane.tokens && earlier.values.columns() == values.columns();
      if ((before || same) && fits) sources.push_back(&earlier);
    }
    for (const DecodedPlane* source : sources) {
      const float share = sign / static_cast<float>(sources.size());
      for (std::size_t i = 0; i < values.values(); ++i) {
        values.data[i] += share * source->values.data[i];
      }
    }
    return sources.size();
  }
};

}  // namespace

std::unique_ptr<Selector> MakeToyWeigh() {
  return std::make_unique<ToyWeigh>();
}
std::unique_ptr<Transform> MakeToyScale(const Settings& settings) {
  return std::make_unique<ToyScale>(settings);
}
std::unique_ptr<Transform> MakeToyPredict() {
  return std::make_unique<ToyPredict>();
}

}  // namespace kvserve::testing
