// The error bounds of quantizers, over every setting, shapes and dtypes: no value is further from
// what it was than docs/FORMAT_STAGES.md says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "kvserve/codec.h"
#include "pipeline/plane_order.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
#include "pipeline/testing/chunk.h"
#include "stages/registry.h"
#include "stages/testing/chains.h"
#include "stages/testing/frames.h"

namespace kvserve {
namespace {

constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                             DType::kFloat8E4M3FN, DType::kFloat8E5M2FNUZ};

// What rounding to the cache's dtype adds: relative to the value, and of subnormals.
struct Rounding {
  double relative = 0.0;
  double absolute = 0.0;
};
Rounding RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return {0x1p-11, 0x1p-25};
    case DType::kBFloat16: return {0x1p-8, 0.0};
    case DType::kFloat8E4M3FN: return {0x1p-4, 0x1p-10};
    case DType::kFloat8E5M2FNUZ: return {0x1p-3, 0x1p-18};
    default: return {0x1p-20, 0.0};  // of the arithmetic alone
  }
}

// Values of a stage of a profile by the name of the parameter.
class Values {
 public:
  Values(const StageSpec& spec, PlaneKind kind)
      : info_(*FindStage(BuiltinStages(), spec.id)->info),
        settings_(info_, spec.parameters),
        kind_(kind) {}
  double operator()(std::string_view name) const {
    for (const ParameterInfo& parameter : info_.parameters) {
      if (parameter.name == name) return settings_.value(parameter.id, kind_);
    }
    ADD_FAILURE() << "no parameter " << name;
    return 0.0;
  }

 private:
  const StageInfo& info_;
  Settings settings_;
  PlaneKind kind_;
};

enum Axis { kChannel, kToken, kGroup, kTensor };
enum Range { kMinMax, kSymmetric, kFixed };

// The range that each value of a plane shares, as (lowest, highest) per value.
struct Shared {
  std::vector<float> low, high;
};

Shared RangesOf(const std::vector<float>& x, const OrderedPlane<const std::byte>& plane,
                const Values& values, std::size_t first) {
  const std::size_t columns = std::size_t{plane.view.heads} * plane.view.dim;
  const std::size_t dim = plane.view.dim;
  const auto group = std::min<std::size_t>(static_cast<std::size_t>(values("group")), dim);
  const auto axis = static_cast<int>(values("axis"));
  const auto block = static_cast<std::size_t>(values("group_tokens"));
  const auto range_of = [&](std::size_t i) -> std::size_t {
    const std::size_t column = i % columns;
    switch (axis) {
      case kChannel:
        return block == 0 || i < first ? column : (i - first) / columns / block * columns + column;
      case kToken: return i / columns;
      case kGroup: return (i / columns * columns + column / dim * dim) + column % dim / group;
      default: return 0;
    }
  };
  std::vector<float> low(x.size() + 1, HUGE_VALF);
  std::vector<float> high(x.size() + 1, -HUGE_VALF);
  for (std::size_t i = first; i < x.size(); ++i) {
    low[range_of(i)] = std::min(low[range_of(i)], x[i]);
    high[range_of(i)] = std::max(high[range_of(i)], x[i]);
  }
  Shared shared;
  for (std::size_t i = 0; i < x.size(); ++i) {
    shared.low.push_back(low[range_of(i)]);
    shared.high.push_back(high[range_of(i)]);
  }
  return shared;
}

double StepBound(const Values& values, float low, float high) {
  const double intervals = values("levels") - 1;
  switch (static_cast<int>(values("range"))) {
    case kMinMax: return (double{high} - low) / intervals * 17 / 16;  // steps are rounded up
    case kSymmetric: {
      return 2 * std::max(std::fabs(double{low}), std::fabs(double{high})) / intervals * 17 / 16;
    }
    default: return values("step");
  }
}

// What float16s of a grid are off, whose plane may have been scaled to 2^14 first.
double HalfGridBound(const Values& values, const std::vector<float>& x, float low, float high) {
  if (values("grids") == 0 || static_cast<int>(values("range")) == kFixed) return 0.0;
  double largest = 0.0;
  for (const float value : x) largest = std::max(largest, std::fabs(double{value}));
  const double scale = largest > 0x1p-10 && largest < 0x1p14 ? 1.0 : largest * 0x1p-13;
  const double width = StepBound(values, low, high) * (values("levels") - 1);
  return (std::fabs(double{low}) + width) * 0x1p-11 + 0x1p-25 * scale * values("levels");
}

void CheckUniformPlane(const OrderedPlane<const std::byte>& before, const ConstPlaneView& after,
                       const StageSpec& spec) {
  const Values values(spec, before.kind);
  const auto x = testing::PlaneValues(before.view);
  const auto y = testing::PlaneValues(after);
  const bool raw = values("raw_first") != 0 && before.tokens.begin == 0;
  const std::size_t columns = std::size_t{before.view.heads} * before.view.dim;
  const std::size_t first = raw && !x.empty() ? columns : 0;
  const Shared shared = RangesOf(x, before, values, first);
  const bool means = values("reconstruct") != 0;
  // Means move points within their bins; a dead zone widens the bin around 0.
  const double steps = (means ? 1.0 : 0.5) * (1 + values("dead_zone"));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Rounding of_dtype = RoundingOf(before.view.dtype);
    const double rounding =
        (std::fabs(x[i]) + std::fabs(y[i])) * of_dtype.relative + of_dtype.absolute;
    const float low = shared.low[i];
    const float high = shared.high[i];
    const double bound =
        i < first ? 0.0
                  : steps * StepBound(values, low, high) + HalfGridBound(values, x, low, high);
    ASSERT_LE(std::fabs(double{x[i]} - y[i]), bound * 1.0001 + rounding)
        << PlaneName(before.layer, before.kind) << " value " << i << ": " << x[i] << " and "
        << y[i];
  }
}

// Half of the last digit of the format, relative to the value, or of its subnormals, which a scale
// puts below the range's largest value; without one what is beyond the format is clamped.
void CheckFp8Plane(const OrderedPlane<const std::byte>& before, const ConstPlaneView& after,
                   const StageSpec& spec) {
  const Values values(spec, before.kind);
  const auto x = testing::PlaneValues(before.view);
  const auto y = testing::PlaneValues(after);
  const bool e5m2 = values("format") != 0;
  const double digit = e5m2 ? 0x1p-3 : 0x1p-4;
  double largest = 0.0;
  for (const float value : x) largest = std::max(largest, std::fabs(double{value}));
  const double smallest_digit = e5m2 ? 0x1p-17 : 0x1p-10;
  const double format_largest = e5m2 ? 57344.0 : 448.0;
  const bool scaled = values("scale") != 0;
  const double scale = scaled ? 2.0 * largest / format_largest : 1.0;
  const Rounding of_dtype = RoundingOf(before.view.dtype);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!scaled && std::fabs(x[i]) > format_largest) continue;
    const double bound = std::fabs(x[i]) * digit + smallest_digit * scale +
                         (std::fabs(x[i]) + std::fabs(y[i])) * of_dtype.relative +
                         of_dtype.absolute;
    ASSERT_LE(std::fabs(double{x[i]} - y[i]), bound * 1.0001)
        << PlaneName(before.layer, before.kind) << " value " << i << ": " << x[i] << " and "
        << y[i];
  }
}

using CheckPlane = void (*)(const OrderedPlane<const std::byte>&, const ConstPlaneView&,
                            const StageSpec&);

void CheckEverySetting(std::string_view stage, CheckPlane check) {
  for (const std::string& text : testing::AllSettings()) {
    if (!text.starts_with(std::string(stage) + ":")) continue;
    const Profile profile = ParseProfile(text).value();
    for (const DType dtype : kDTypes) {
      for (const TokenRange tokens : {TokenRange{0, 1}, TokenRange{0, 33}, TokenRange{64, 80}}) {
        SCOPED_TRACE(text + " " + std::string(DTypeName(dtype)) + " " + std::to_string(tokens.end));
        const KvBuffer chunk = testing::MakeChunk(
            testing::MakeGeometry(dtype, {{2, 100, 80}, {1, 64, 0}, {3, 1, 8, 4}}), tokens);
        std::vector<std::byte> frame;
        ASSERT_TRUE(testing::EncodeSample(chunk.view(), profile, frame));
        KvBuffer decoded;
        ASSERT_TRUE(testing::DecodeSample(frame, decoded));
        const auto before = CodingOrder(chunk.view());
        const auto after = CodingOrder(std::as_const(decoded).view());
        ASSERT_EQ(before.size(), after.size());
        for (std::size_t p = 0; p < before.size(); ++p) {
          check(before[p], after[p].view, profile.stages.front());
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ErrorBound, HoldsForEverySettingOfUniform) {
  CheckEverySetting("uniform", CheckUniformPlane);
}

TEST(ErrorBound, HoldsForEverySettingOfFp8) {
  CheckEverySetting("fp8", CheckFp8Plane);
}

}  // namespace
}  // namespace kvserve
