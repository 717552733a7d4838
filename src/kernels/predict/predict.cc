#include "kernels/predict/predict.h"

#include <cstddef>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/predict/predict.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using F64 = hn::CappedTag<double, 8>;  // divides 8, so that element i meets sum i mod 8

}  // namespace

// Eight sums each over the leading multiple of 8 elements; returns how many that were.
std::size_t ProjectVectors(const float* values, const float* reference, std::size_t count,
                           double* product, double* energy) {
  const F64 d;
  const hn::Rebind<float, F64> half;
  constexpr std::size_t kLanes = hn::MaxLanes(F64());
  constexpr std::size_t kVectors = 8 / kLanes;
  const std::size_t whole = count / 8 * 8;
  hn::Vec<F64> products[kVectors];
  hn::Vec<F64> energies[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k) products[k] = energies[k] = hn::Zero(d);
  for (std::size_t i = 0; i < whole; i += 8) {
    for (std::size_t k = 0; k < kVectors; ++k) {
      const auto value = hn::PromoteTo(d, hn::LoadU(half, values + i + k * kLanes));
      const auto ref = hn::PromoteTo(d, hn::LoadU(half, reference + i + k * kLanes));
      products[k] = hn::Add(products[k], hn::Mul(value, ref));
      energies[k] = hn::Add(energies[k], hn::Mul(ref, ref));
    }
  }
  for (std::size_t k = 0; k < kVectors; ++k) {
    hn::StoreU(products[k], d, product + k * kLanes);
    hn::StoreU(energies[k], d, energy + k * kLanes);
  }
  return whole;
}

// Both return how many leading elements they did.
std::size_t SubtractVectors(float* values, const float* reference, std::size_t count,
                            float weight) {
  const F32 d;
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto predicted = hn::Mul(hn::Set(d, weight), hn::LoadU(d, reference + i));
    hn::StoreU(hn::Sub(hn::LoadU(d, values + i), predicted), d, values + i);
  }
  return i;
}

std::size_t AddVectors(float* values, const float* reference, std::size_t count, float weight) {
  const F32 d;
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto predicted = hn::Mul(hn::Set(d, weight), hn::LoadU(d, reference + i));
    hn::StoreU(hn::Add(hn::LoadU(d, values + i), predicted), d, values + i);
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(ProjectVectors);
HWY_EXPORT(SubtractVectors);
HWY_EXPORT(AddVectors);

void AddProjection(std::span<const float> values, std::span<const float> reference,
                   Projection& sums) {
  if (UseScalarKernels()) return AddProjectionRef(values, reference, sums);
  double product[8] = {};
  double energy[8] = {};
  std::size_t i = HWY_DYNAMIC_DISPATCH(ProjectVectors)(values.data(), reference.data(),
                                                       values.size(), product, energy);
  for (; i < values.size(); ++i) {
    product[i % 8] += double{values[i]} * reference[i];
    energy[i % 8] += double{reference[i]} * reference[i];
  }
  const auto total = [](const double* s) {
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  };
  sums.product += total(product);
  sums.energy += total(energy);
}

void SubtractScaled(std::span<float> values, std::span<const float> reference, float weight) {
  if (UseScalarKernels()) return SubtractScaledRef(values, reference, weight);
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(SubtractVectors)(values.data(), reference.data(), values.size(), weight);
  SubtractScaledRef(values.subspan(done), reference.subspan(done), weight);
}

void AddScaled(std::span<float> values, std::span<const float> reference, float weight) {
  if (UseScalarKernels()) return AddScaledRef(values, reference, weight);
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(AddVectors)(values.data(), reference.data(), values.size(), weight);
  AddScaledRef(values.subspan(done), reference.subspan(done), weight);
}

}  // namespace kvserve
#endif
