#include "kernels/quantize/level_means.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kNoMeans = 0;
constexpr std::uint8_t kMeans = 1;  // i8 per level
constexpr float kUnit = 1.0F / 256.0F;

}  // namespace

void LevelMeans::Write(std::size_t values, ByteWriter& out) const {
  std::array<std::int8_t, 256> means{};
  double gain = 0.0;  // in squared error of the sample
  for (std::uint32_t q = 0; q < levels_; ++q) {
    if (counts_[q] == 0.0) continue;
    const double mean = sums_[q] / counts_[q];
    const double coded = std::clamp(std::floor(mean * 256.0 + 0.5), -128.0, 127.0);
    means[q] = static_cast<std::int8_t>(coded);
    const double shift = coded / 256.0;
    gain += counts_[q] * shift * (2.0 * mean - shift);
  }
  // A factor 4 of squared error is worth a bit per value, and log2(1 / (1 - x)) > 1.44 x.
  const double bits_saved =
      squares_ > 0.0 ? 0.72 * (gain / squares_) * static_cast<double>(values) : 0.0;
  if (bits_saved <= 8.0 * levels_) {
    out.Put(kNoMeans);
    return;
  }
  out.Put(kMeans);
  out.PutBytes(std::as_bytes(std::span(means).first(levels_)));
}

Result<std::span<const float>> LevelMeans::Read(std::uint32_t levels, Arena& arena,
                                                ByteReader& in) {
  KVSERVE_ASSIGN(const auto form, in.Get<std::uint8_t>());
  if (form > kMeans) return MakeError(ErrorCode::kCorruptData, "unknown form of means");
  if (form == kNoMeans) return std::span<const float>();
  KVSERVE_ASSIGN(const auto bytes, in.GetBytes(levels));
  const auto points = arena.TakeZeroed<float>(256);
  for (std::uint32_t q = 0; q < levels; ++q) {
    const auto mean = static_cast<float>(static_cast<std::int8_t>(bytes[q]));
    points[q] = static_cast<float>(q) + mean * kUnit;
  }
  return points;
}

}  // namespace kvserve
