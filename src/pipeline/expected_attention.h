// Expected attention (Devoto et al. 2025, arXiv:2510.00636): how much queries that are still to
// come will look at a key, from the mean m and covariance S of the model's queries. Those are
// measured before RoPE and rotated here to the positions ahead of the prompt's end, so that keys
// stay as they are. A key's logit is k.m / sqrt(d) + k^T S k / (2 d), the logarithm of the mean of
// exp for Gaussian queries; p is its softmax over the keys seen, per query head, and o = sum p v.
// To first order an error of v moves the output by p, one of k by p (v - o): their sensitivities
// are the sums over heads of p^2 and of p^2 |v - o|^2.
#pragma once

#include <span>
#include <vector>

#include "base/arena.h"
#include "kernels/attention/queries_ahead.h"
#include "kvserve/error.h"
#include "kvserve/view.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// What the query heads of a layer make of a run of its keys; later tokens of the request need no
// more of them.
struct SeenKeys {
  TokenRange tokens;
  double queries_from = 0;        // position that queries were expected from
  std::vector<double> log_sum;    // [query head] logarithm of the sum of e^logit
  std::vector<float> mean_value;  // [query head, v_dim] o over the run; empty for a single plane
};

// Of a run of tokens, [token] each. Added to, over the query heads.
struct TokenSensitivity {
  std::span<float> key;
  std::span<float> value;  // of a single plane, which is key and value at once, too
  std::span<float> rank;   // p |v|, or p for a single plane
};

// Averages of the rotations of this layer to positions from `first` to `horizon` later. Layers of
// odd width do not rotate, as in engines and in `unrope`: an odd channel has no partner.
[[nodiscard]] RotationAverages QueriesAhead(const LayerGeometry& layer, double first,
                                            double horizon, Arena& arena);

// kMismatch unless the artefact has query statistics that fit this layer. `artefact` may be null.
[[nodiscard]] Status CheckQueryStatistics(const CalibrationArtefact* artefact,
                                          const ConstLayerView& layer);

// Sensitivities of a layer's tokens. `before`: keys of earlier tokens that the softmax covers too,
// or null. Sets all of `now` but queries_from unless null. False, and nothing else, when a value is
// not finite. Bit-identical on every instruction set.
[[nodiscard]] bool AddSensitivity(const ConstLayerView& layer, const QueryStatistics& queries,
                                  const RotationAverages& ahead, const SeenKeys* before,
                                  SeenKeys* now, const TokenSensitivity& out, Arena& scratch);

// Adds a run with its logits raised by `shift` to `all`, which may be empty.
void AddSeenKeys(const SeenKeys& run, double shift, SeenKeys& all);

}  // namespace kvserve
