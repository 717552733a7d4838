#include "pipeline/attention_levels.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace kvserve {
namespace {

constexpr double kAheadOffset = 64;
constexpr double kDistanceOffset = 32;
constexpr std::uint32_t kMostSamples = 64;

// Between knots `low` and `low + 1`, `share` of the way.
struct Place {
  std::size_t low = 0;
  double share = 0;
};

Place Find(std::span<const std::uint32_t> knots, double value, double offset) {
  const auto above = std::upper_bound(knots.begin(), knots.end(), value);
  if (above == knots.begin()) return {0, 0};
  const auto low = static_cast<std::size_t>(above - knots.begin()) - 1;
  if (above == knots.end()) return {low, 0};
  const double from = std::log2(knots[low] + offset);
  return {low, (std::log2(value + offset) - from) / (std::log2(*above + offset) - from)};
}

double Between(std::span<const float> values, Place place) {
  const double low = values[place.low];
  return place.share == 0 ? low : low + place.share * (values[place.low + 1] - low);
}

}  // namespace

double AttentionLevels::Level(double seen, double ahead) const {
  const double within = std::clamp(seen, static_cast<double>(profile_.seen.front()),
                                   static_cast<double>(profile_.seen.back()));
  const Place row = Find(profile_.seen, within, 0);
  const Place column = Find(profile_.ahead, ahead, kAheadOffset);
  const auto level = [&](std::size_t index) {
    const std::size_t columns = profile_.ahead.size();
    return Between(std::span(plane_.level).subspan(index * columns, columns), column);
  };
  double found = level(row.low);
  if (row.share != 0) found += row.share * (level(row.low + 1) - found);
  return found - 2 * std::log2(std::max(seen, 1.0) / within);
}

double AttentionLevels::Recency(double distance) const {
  return Between(plane_.recency, Find(profile_.distance, distance, kDistanceOffset));
}

double AttentionLevels::MeanRecency(TokenRange tokens, double end) const {
  if (tokens.size() == 0) return 0;
  const std::uint32_t samples = std::min(tokens.size(), kMostSamples);
  double sum = 0;
  for (std::uint32_t i = 0; i < samples; ++i) {
    sum += Recency(end - tokens.begin - (i + 0.5) * tokens.size() / samples);
  }
  return sum / samples;
}

double AttentionLevels::Expected(TokenRange tokens, double seen, double end) const {
  const double ahead = end - tokens.end;
  const double held = std::min<double>(AttentionProfile::kLevelTokens, seen);
  return Level(seen, ahead) - Recency(ahead + held / 2) + MeanRecency(tokens, end);
}

}  // namespace kvserve
