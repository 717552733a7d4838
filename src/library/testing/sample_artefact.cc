#include "library/testing/sample_artefact.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "base/hash.h"
#include "library/testing/sample_sections.h"
#include "library/testing/sample_transform.h"

namespace kvserve::testing {
namespace {

constexpr unsigned kTableTotal = 4096;

// Falls off from one symbol on both sides; sums to 4096 with at least 1 each.
std::array<std::uint16_t, 256> Frequencies(std::uint32_t alphabet, std::uint32_t centre) {
  std::array<std::uint16_t, 256> frequencies{};
  unsigned left = kTableTotal - alphabet;
  for (std::uint32_t s = 0; s < alphabet; ++s) frequencies[s] = 1;
  for (std::uint32_t distance = 0; distance < alphabet && left > 0; ++distance) {
    for (const std::int64_t symbol :
         {std::int64_t{centre} - distance, std::int64_t{centre} + distance}) {
      if (symbol < 0 || symbol >= alphabet) continue;
      const unsigned share = (left + 2) / 3;
      frequencies[static_cast<std::size_t>(symbol)] += static_cast<std::uint16_t>(share);
      left -= share;
    }
  }
  frequencies[centre] += static_cast<std::uint16_t>(left);
  return frequencies;
}

const std::vector<EntropyClasses>& AllClasses() {
  static const std::vector<EntropyClasses> all = [] {
    std::vector<EntropyClasses> classes;
    for (std::uint32_t alphabet = 2; alphabet <= 256; ++alphabet) {
      classes.push_back(
          {alphabet, {Frequencies(alphabet, alphabet / 2), Frequencies(alphabet, alphabet / 4)}});
    }
    return classes;
  }();
  return all;
}

ChannelStatistics Statistics(std::size_t columns) {
  ChannelStatistics statistics;
  for (std::size_t i = 0; i < columns; ++i) {
    statistics.mean.push_back(static_cast<float>(i % 5) - 2.0F);
    statistics.scale.push_back(0.5F + static_cast<float>(i % 7));
  }
  return statistics;
}

constexpr std::size_t kMostKltColumns = 640;

void AddKlt(std::size_t heads, std::size_t dim, CalibrationArtefact::Contents& contents) {
  const std::size_t all = heads * dim;
  auto& by_head = contents.klt_heads.emplace_back();
  auto& joint = contents.klt_joint.emplace_back();
  if (dim == 0 || dim > kMostKltColumns) return;
  by_head = SampleKlt(all, dim);
  if (all <= kMostKltColumns) joint = SampleKlt(all, all);
}

std::shared_ptr<const CalibrationArtefact> MakeSample(const KvGeometry& geometry) {
  CalibrationArtefact::Contents contents;
  contents.geometry = geometry;
  contents.tokens = 1000;
  contents.source = "made up";
  contents.entropy = AllClasses();
  contents.attention_profile = SampleAttention(geometry);
  std::vector<std::uint32_t> shape;
  for (const LayerGeometry& layer : geometry.layers) {
    contents.statistics.push_back(Statistics(std::size_t{layer.kv_heads} * layer.k_dim));
    contents.statistics.push_back(Statistics(std::size_t{layer.kv_heads} * layer.v_dim));
    AddKlt(layer.kv_heads, layer.k_dim, contents);
    AddKlt(layer.kv_heads, layer.v_dim, contents);
    const auto index = static_cast<std::uint32_t>(contents.head_scores.size());
    contents.head_scores.push_back(SampleHeadScores(index, layer.kv_heads));
    contents.query_statistics.push_back(layer.k_dim > kMostKltColumns
                                            ? QueryStatistics{}
                                            : SampleQueries(2 * layer.kv_heads, layer.k_dim));
    shape.insert(shape.end(), {layer.kv_heads, layer.k_dim, layer.v_dim});
  }
  contents.predictor_layers = 2;
  AddTransformSample(kMostKltColumns, contents);
  return std::make_shared<const CalibrationArtefact>(std::move(contents),
                                                     Hash128(std::as_bytes(std::span(shape))));
}

// Geometries of late with their artefacts: tests ask for the same one at every frame, and it takes
// long to make, and to invert its matrices.
struct Kept {
  KvGeometry geometry;
  std::shared_ptr<const CalibrationArtefact> artefact;
};
constexpr std::size_t kKept = 4;

}  // namespace

std::shared_ptr<const CalibrationArtefact> SampleArtefact(const KvGeometry& geometry) {
  static std::mutex mutex;
  static std::deque<Kept> kept;
  const std::lock_guard lock(mutex);
  const auto found = std::ranges::find(kept, geometry, &Kept::geometry);
  if (found != kept.end()) return found->artefact;
  if (kept.size() == kKept) kept.pop_front();
  return kept.emplace_back(Kept{geometry, MakeSample(geometry)}).artefact;
}

}  // namespace kvserve::testing
