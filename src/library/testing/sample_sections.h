// Made-up contents of single planes and layers, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "library/calibration_artefact.h"

namespace kvserve::testing {

// `all` columns in groups of `columns`. The basis is a Householder reflection with its rows turned
// by one, so that it is dense and not symmetric, and another one for each group.
inline KarhunenLoeve SampleKlt(std::size_t all, std::size_t columns) {
  KarhunenLoeve klt;
  klt.columns = static_cast<std::uint32_t>(columns);
  for (std::size_t group = 0; group * columns < all; ++group) {
    const auto normal = [&](std::size_t i) {
      return static_cast<double>((i * 7 + 3 + group) % 11) - 5.5;
    };
    double norm = 0;
    for (std::size_t i = 0; i < columns; ++i) norm += normal(i) * normal(i);
    for (std::size_t i = 0; i < columns; ++i) {
      const std::size_t row = (i + 1) % columns;
      klt.mean.push_back(static_cast<float>((i + group) % 5) / 4.0F - 0.5F);
      klt.variance.push_back(4.0F / static_cast<float>(i + 1));
      for (std::size_t c = 0; c < columns; ++c) {
        const double reflected = (row == c ? 1.0 : 0.0) - 2 * normal(row) * normal(c) / norm;
        klt.basis.push_back(static_cast<float>(reflected));
      }
    }
  }
  return klt;
}

inline QueryStatistics SampleQueries(std::uint32_t heads, std::uint32_t dim) {
  QueryStatistics queries{.heads = heads, .dim = dim, .mean = {}, .covariance = {}};
  for (std::uint32_t head = 0; head < heads; ++head) {
    for (std::uint32_t i = 0; i < dim; ++i) {
      queries.mean.push_back(static_cast<float>((i + head) % 3) - 1.0F);
      for (std::uint32_t j = 0; j < dim; ++j) {
        const float product = static_cast<float>((i % 3 + 1) * (j % 3 + 1)) / 64.0F;
        queries.covariance.push_back(i == j ? 1.0F + product : product);
      }
    }
  }
  return queries;
}

// Heads alternate between streaming and retrieval.
inline std::vector<float> SampleHeadScores(std::uint32_t layer, std::uint32_t kv_heads) {
  std::vector<float> scores;
  for (std::uint32_t head = 0; head < kv_heads; ++head) {
    scores.push_back(static_cast<float>(1 + (head % 2) * 8 + (layer + head) % 4) / 16.0F);
  }
  return scores;
}

inline FrameExpectation SampleExpectation(const KvGeometry& geometry) {
  FrameExpectation expectation{.frame_tokens = 256, .planes = {}, .in_kind = false};
  for (const LayerGeometry& layer : geometry.layers) {
    expectation.planes.push_back({2, 0.5F, 1, 0.25F});
    expectation.planes.push_back(layer.v_dim == 0 ? FrameExpectation::Plane{}
                                                  : FrameExpectation::Plane{-1, 1, 0.5F, 0});
  }
  return expectation;
}

// Of planes [2 * layer + kind]; levels fall with the keys seen and rise towards the prompt's end.
inline AttentionProfile SampleAttention(const KvGeometry& geometry) {
  AttentionProfile profile{.horizon = 384,
                           .seen = {64, 256},
                           .ahead = {0, 64, 512},
                           .distance = {16, 48, 200},
                           .planes = {}};
  for (const LayerGeometry& layer : geometry.layers) {
    for (const bool there : {true, layer.v_dim != 0}) {
      auto& plane = profile.planes.emplace_back();
      if (!there) continue;
      const auto own = static_cast<float>(profile.planes.size() % 5);
      plane.level = {-8 - own, -9 - own, -10 - own, -12 - own, -12.5F - own, -14 - own};
      plane.recency = {2 + own, 0, -2 - own};
    }
  }
  return profile;
}

}  // namespace kvserve::testing
