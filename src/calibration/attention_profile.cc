#include "calibration/attention_profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/token_slice.h"
#include "base/try.h"
#include "pipeline/expected_attention.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kSinks = 4;        // first tokens of a text, which are like no others
constexpr std::uint32_t kLeastTokens = 8;  // of a text
constexpr double kTiny = 1e-30;
constexpr std::uint32_t kAhead[] = {0, 128, 512, 2048};
constexpr std::uint32_t kFirstSeen = 64;

struct Mean {
  double sum = 0;
  double count = 0;
  void Add(double value) {
    sum += value;
    count += 1;
  }
  [[nodiscard]] std::optional<double> value() const {
    return count == 0 ? std::nullopt : std::optional(sum / count);
  }
};

// Of one plane.
struct PlaneMeans {
  std::vector<Mean> level;    // [seen][ahead]
  std::vector<Mean> recency;  // [distance]
};

std::vector<std::uint32_t> SeenKnots(std::uint32_t longest) {
  std::vector<std::uint32_t> knots;
  for (std::uint32_t knot = std::min(kFirstSeen, longest); knot <= longest; knot *= 2) {
    knots.push_back(knot);
  }
  if (longest > knots.back() + knots.back() / 4) knots.push_back(longest);
  return knots;
}

// Borders of ranges of distance, two per octave from 64 on.
std::vector<std::uint32_t> DistanceBorders(std::uint32_t longest) {
  std::vector<std::uint32_t> borders = {0, 16, 32};
  for (std::uint32_t border = 64; borders.back() < longest; border *= 2) {
    borders.push_back(border);
    borders.push_back(border + border / 2);
  }
  while (borders.size() > 2 && borders[borders.size() - 2] >= longest) borders.pop_back();
  borders.back() = std::max(borders.back(), longest + 1);
  return borders;
}

class LayerMeasurement {
 public:
  LayerMeasurement(const AttentionProfile& profile, std::span<const std::uint32_t> borders,
                   const LayerGeometry& geometry, const QueryStatistics& queries, Arena& arena)
      : profile_(profile),
        borders_(borders),
        geometry_(geometry),
        queries_(queries),
        arena_(arena) {
    for (PlaneMeans& plane : planes_) {
      plane.level.resize(profile.seen.size() * profile.ahead.size());
      plane.recency.resize(profile.distance.size());
    }
  }

  // The KV of a text in this layer alone.
  Status Add(const ConstKvView& text) {
    const TokenRange tokens = text.layers[0].tokens;
    for (std::size_t s = 0; s < profile_.seen.size(); ++s) {
      const std::uint32_t seen = profile_.seen[s];
      for (std::size_t a = 0; a < profile_.ahead.size() && seen <= tokens.size(); ++a) {
        const std::uint32_t ahead = profile_.ahead[a];
        if (geometry_.window_tokens > 0 && seen + ahead > geometry_.window_tokens) continue;
        const TokenRange keys{tokens.begin, tokens.begin + seen};
        KVSERVE_TRY(Weigh(SliceTokens(text, keys), keys.end + ahead));
        const std::uint32_t last = std::min(AttentionProfile::kLevelTokens, seen);
        Visit({keys.end - last, keys.end}, keys.begin, [&](PlaneMeans& plane, auto, double log) {
          plane.level[s * profile_.ahead.size() + a].Add(log);
        });
      }
    }
    TokenRange all = tokens;
    if (geometry_.window_tokens > 0 && all.size() > geometry_.window_tokens) {
      all.begin = all.end - geometry_.window_tokens;
    }
    KVSERVE_TRY(Weigh(SliceTokens(text, all), all.end));
    // Texts of any length together: all keys being alike, sensitivities fall as its square.
    const double length = 2 * std::log2(static_cast<double>(all.size()));
    Visit(all, all.begin, [&](PlaneMeans& plane, std::uint32_t token, double log) {
      const auto above = std::upper_bound(borders_.begin(), borders_.end(), all.end - token - 1);
      plane.recency[static_cast<std::size_t>(above - borders_.begin()) - 1].Add(log + length);
    });
    return {};
  }

  [[nodiscard]] AttentionProfile::Plane Plane(PlaneKind kind) const {
    const PlaneMeans& means = planes_[kind == PlaneKind::kKey ? 0 : 1];
    AttentionProfile::Plane plane;
    const std::size_t columns = profile_.ahead.size();
    for (std::size_t i = 0; i < means.level.size(); ++i) {
      const std::optional<double> level = means.level[i].value();
      double found = 0;
      if (level) {
        found = *level;
      } else if (i % columns > 0) {  // beyond the window
        found = plane.level[i - 1];
      } else if (i > 0) {
        found = plane.level[i - columns] -
                2 * std::log2(static_cast<double>(profile_.seen[i / columns]) /
                              profile_.seen[i / columns - 1]);
      }
      plane.level.push_back(static_cast<float>(found));
    }
    AddRecency(means, plane);
    return plane;
  }

 private:
  Status Weigh(const ConstKvView& keys, double queries_from) {
    arena_.Reset();
    const std::size_t tokens = keys.layers[0].tokens.size();
    found_ = {arena_.TakeZeroed<float>(tokens), arena_.TakeZeroed<float>(tokens),
              arena_.TakeZeroed<float>(tokens)};
    const RotationAverages ahead = QueriesAhead(geometry_, queries_from, profile_.horizon, arena_);
    if (AddSensitivity(keys.layers[0], queries_, ahead, nullptr, nullptr, found_, arena_)) {
      return {};
    }
    return MakeError(ErrorCode::kBadInput, "layer " + std::to_string(keys.layers[0].layer) +
                                               ": a value is not finite, so there are no "
                                               "statistics");
  }

  // Of what Weigh found from token `first` on.
  template <typename Function>
  void Visit(TokenRange tokens, std::uint32_t first, const Function& visit) {
    const bool single = geometry_.single_plane();
    for (std::uint32_t t = std::max(tokens.begin, kSinks); t < tokens.end; ++t) {
      const auto log = [&](std::span<const float> values) {
        return std::log2(std::max(double{values[t - first]}, kTiny));
      };
      visit(planes_[0], t, log(single ? found_.value : found_.key));
      if (!single) visit(planes_[1], t, log(found_.value));
    }
  }

  static void AddRecency(const PlaneMeans& means, AttentionProfile::Plane& plane) {
    double last = 0;
    for (const Mean& mean : means.recency) {
      if (const auto value = mean.value()) {
        last = *value;
        break;
      }
    }
    double sum = 0;
    std::vector<double> values;
    for (const Mean& mean : means.recency) {
      last = mean.value().value_or(last);
      values.push_back(last);
      sum += last;
    }
    for (const double value : values) {
      plane.recency.push_back(static_cast<float>(value - sum / static_cast<double>(values.size())));
    }
  }

  const AttentionProfile& profile_;
  std::span<const std::uint32_t> borders_;
  const LayerGeometry& geometry_;
  const QueryStatistics& queries_;
  Arena& arena_;
  TokenSensitivity found_;
  std::array<PlaneMeans, 2> planes_;
};

std::uint32_t Longest(std::span<const ConstKvView> texts) {
  std::uint32_t longest = 0;
  for (const ConstKvView& text : texts) longest = std::max(longest, text.tokens.size());
  return longest;
}

// The layer alone; null when it is not there, or too short.
const ConstLayerView* FindLayer(const ConstKvView& text, std::uint32_t layer) {
  const auto found = std::ranges::find(text.layers, layer, &ConstLayerView::layer);
  return found == text.layers.end() || found->tokens.size() < kLeastTokens ? nullptr : &*found;
}

Status MeasureLayer(std::span<const ConstKvView> texts, std::uint32_t layer,
                    const QueryStatistics& queries, std::span<const std::uint32_t> borders,
                    AttentionProfile& profile, Arena& scratch) {
  const LayerGeometry& geometry = texts[0].geometry->layers[layer];
  LayerMeasurement measurement(profile, borders, geometry, queries, scratch);
  bool any = false;
  for (const ConstKvView& text : texts) {
    const ConstLayerView* const found = FindLayer(text, layer);
    if (found == nullptr) continue;
    KVSERVE_TRY(measurement.Add({text.geometry, found->tokens, {*found}, text.device, {}}));
    any = true;
  }
  if (!any) return {};
  profile.planes[2 * std::size_t{layer}] = measurement.Plane(PlaneKind::kKey);
  if (!geometry.single_plane()) {
    profile.planes[2 * std::size_t{layer} + 1] = measurement.Plane(PlaneKind::kValue);
  }
  return {};
}

}  // namespace

Result<AttentionProfile> MeasureAttention(std::span<const ConstKvView> texts,
                                          std::span<const QueryStatistics> queries,
                                          std::uint32_t horizon, Workers& workers) {
  const std::uint32_t longest = Longest(texts);
  if (longest < kLeastTokens) {
    return MakeError(ErrorCode::kBadInput, "no text is long enough to measure attention");
  }
  const std::vector<std::uint32_t> borders = DistanceBorders(longest);
  AttentionProfile profile;
  profile.horizon = horizon;
  profile.seen = SeenKnots(longest);
  profile.ahead.assign(std::begin(kAhead), std::end(kAhead));
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    profile.distance.push_back((borders[i] + borders[i + 1]) / 2);
  }
  profile.planes.resize(2 * texts[0].geometry->layers.size());
  KVSERVE_TRY(workers.Run(queries.size(), [&](std::size_t layer, Arena& scratch) -> Status {
    if (queries[layer].heads == 0) return {};
    return MeasureLayer(texts, static_cast<std::uint32_t>(layer), queries[layer], borders, profile,
                        scratch);
  }));
  return profile;
}

}  // namespace kvserve
