#include <array>
#include <cstddef>

#include "kernels/predict/predict.h"

namespace kvserve {
namespace {

double Total(const std::array<double, 8>& s) {
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

}  // namespace

void AddProjectionRef(std::span<const float> values, std::span<const float> reference,
                      Projection& sums) {
  std::array<double, 8> product{};
  std::array<double, 8> energy{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    product[i % 8] += double{values[i]} * reference[i];
    energy[i % 8] += double{reference[i]} * reference[i];
  }
  sums.product += Total(product);
  sums.energy += Total(energy);
}

void SubtractScaledRef(std::span<float> values, std::span<const float> reference, float weight) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float predicted = weight * reference[i];
    values[i] = values[i] - predicted;
  }
}

void AddScaledRef(std::span<float> values, std::span<const float> reference, float weight) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float predicted = weight * reference[i];
    values[i] = values[i] + predicted;
  }
}

}  // namespace kvserve
