#include <bit>
#include <cmath>

#include "base/split_mix.h"
#include "kernels/hadamard/hadamard.h"

namespace kvserve {
namespace {

void Butterflies(std::span<float> part) {
  for (std::size_t stride = part.size() / 2; stride > 0; stride /= 2) {
    for (std::size_t block = 0; block < part.size(); block += 2 * stride) {
      for (std::size_t i = block; i < block + stride; ++i) {
        const float a = part[i];
        const float b = part[i + stride];
        part[i] = a + b;
        part[i + stride] = a - b;
      }
    }
  }
}

void TransformParts(std::span<float> head) {
  while (!head.empty()) {
    const auto part = head.first(std::bit_floor(head.size()));
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(part.size())));
    for (float& value : part) value *= scale;
    Butterflies(part);
    head = head.subspan(part.size());
  }
}

void Negate(std::span<float> head, std::span<const std::uint32_t> signs) {
  for (std::size_t i = 0; i < head.size(); ++i) {
    head[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(head[i]) ^ signs[i]);
  }
}

}  // namespace

void HadamardSigns(std::uint32_t seed, std::uint32_t layer, PlaneKind kind, std::uint32_t dim,
                   std::span<std::uint32_t> signs) {
  const std::uint64_t plane = (std::uint64_t{layer} << 1) | static_cast<std::uint64_t>(kind);
  const std::uint64_t base = MixBits((std::uint64_t{seed} << 32) | plane);
  for (std::size_t head = 0; head * dim < signs.size(); ++head) {
    const std::uint64_t key = MixBits(base + head);
    std::uint64_t word = 0;
    for (std::uint32_t d = 0; d < dim; ++d, word >>= 1) {
      if (d % 64 == 0) word = MixBits(key + (d / 64 + 1) * kSplitMixStep);
      signs[head * dim + d] = static_cast<std::uint32_t>(word & 1U) << 31;
    }
  }
}

void HadamardForwardRef(std::span<float> values, std::span<const std::uint32_t> signs,
                        std::uint32_t dim) {
  for (std::size_t at = 0; at < values.size(); at += dim) {
    Negate(values.subspan(at, dim), signs.subspan(at % signs.size(), dim));
    TransformParts(values.subspan(at, dim));
  }
}

void HadamardInverseRef(std::span<float> values, std::span<const std::uint32_t> signs,
                        std::uint32_t dim) {
  for (std::size_t at = 0; at < values.size(); at += dim) {
    TransformParts(values.subspan(at, dim));
    Negate(values.subspan(at, dim), signs.subspan(at % signs.size(), dim));
  }
}

}  // namespace kvserve
