#include "pipeline/head_classes.h"

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

namespace kvserve {
namespace {

using Scores = std::span<const std::vector<float>>;  // [layer][head]

std::size_t HeadsOf(Scores layers) {
  std::size_t heads = 0;
  for (const auto& layer : layers) heads += layer.size();
  return heads;
}

// How many heads of `layers` come before head `head` of layer `at` in order of score, then place.
std::size_t RankOf(Scores layers, std::size_t at, std::size_t head) {
  const float score = layers[at][head];
  std::size_t rank = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (std::size_t h = 0; h < layers[l].size(); ++h) {
      const bool earlier = l < at || (l == at && h < head);
      if (layers[l][h] < score || (layers[l][h] == score && earlier)) ++rank;
    }
  }
  return rank;
}

}  // namespace

Status ClassifyHeads(const HeadShare& share, const CalibrationArtefact* artefact,
                     std::uint32_t layer, std::uint32_t heads, std::vector<std::uint8_t>& classes) {
  if (artefact == nullptr || artefact->contents().head_scores.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "the calibration artefact has no scores of heads");
  }
  const Scores scores = artefact->contents().head_scores;
  classes.clear();
  if (layer >= scores.size() || scores[layer].empty()) return {};
  if (scores[layer].size() != heads) {
    return MakeError(ErrorCode::kMismatch, "the calibration artefact has scores of " +
                                               std::to_string(scores[layer].size()) +
                                               " heads where the layer has " +
                                               std::to_string(heads));
  }
  const Scores among = share.of_model ? scores : scores.subspan(layer, 1);
  const auto low =
      static_cast<std::size_t>(std::floor(share.low * static_cast<double>(HeadsOf(among)) + 0.5));
  classes.resize(heads);
  for (std::uint32_t h = 0; h < heads; ++h) {
    classes[h] = RankOf(among, share.of_model ? layer : 0, h) < low ? kLowHead : kHighHead;
  }
  return {};
}

}  // namespace kvserve
