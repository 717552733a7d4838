// The contents of a calibration artefact: what stages have learnt offline about one model's KV.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvserve/calibration.h"
#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "library/kept_values.h"
#include "library/transform_contents.h"

namespace kvserve {

// Per channel of one plane over the calibration texts, on the cache's values (keys after RoPE).
struct ChannelStatistics {
  std::vector<float> mean;   // [head * dim]
  std::vector<float> scale;  // [head * dim] standard deviation, positive and finite
};

// 12-bit frequencies of up to 64 classes for one alphabet, most useful first: a coder picks one per
// plane instead of sending a table. Every symbol of the alphabet has a frequency of at least 1.
struct EntropyClasses {
  std::uint32_t alphabet = 0;                               // 2..256
  std::vector<std::array<std::uint16_t, 256>> frequencies;  // [class][symbol], sums are 4096
};

// Karhunen-Loeve transform (principal components) of one plane, over groups of adjacent columns
// that are transformed together: every head on its own, or all heads at once. Keys are those before
// RoPE (rotated back at their positions), values as they are. y = basis (x - mean) per group has
// uncorrelated components over the calibration texts.
struct KarhunenLoeve {
  std::uint32_t columns = 0;    // of a group: dim, or heads * dim
  std::vector<float> mean;      // [head * dim]
  std::vector<float> basis;     // [group][component][column], rows orthonormal
  std::vector<float> variance;  // [group][component], falling
};

// Of one layer's queries before RoPE, unscaled, over all positions of the texts but the first.
struct QueryStatistics {
  std::uint32_t heads = 0;        // query heads; query head q reads KV head q / (heads / kv_heads)
  std::uint32_t dim = 0;          // k_dim of the layer
  std::vector<float> mean;        // [head, dim]
  std::vector<float> covariance;  // [head, dim, dim], symmetric
  // Its correlations are multiples of 1 / 127, see RoundCorrelations, and stored as such.
  bool rounded = false;
};

// Rounds correlations, and nothing of the variances: covariance[i, j] becomes q / 127 times
// sqrt(variance[i] variance[j]) with q in -127..127, rounded to float32.
void RoundCorrelations(QueryStatistics& layer);

// What log2 of a token's sensitivity to errors is in the mean over the calibration texts, so that a
// frame of some of a request's tokens can tell what is much and what is little. The sensitivity is
// that of the selector `expected`: queries from the prompt's end to `horizon` tokens later, softmax
// over the keys seen. Tokens 0 to 3 of a text are left out.
struct AttentionProfile {
  struct Plane {
    std::vector<float> level;    // [seen][ahead] of the last kLevelTokens of the keys seen
    std::vector<float> recency;  // [distance] when all keys are seen, less its own mean
  };
  static constexpr std::uint32_t kLevelTokens = 64;
  std::uint32_t horizon = 0;         // tokens, 1 or more
  std::vector<std::uint32_t> seen;   // ascending numbers of keys seen, 1 or more
  std::vector<std::uint32_t> ahead;  // ascending from 0: from the last key seen to the prompt's end
  std::vector<std::uint32_t> distance;  // ascending: from a token to the prompt's end
  // [2 * layer + kind]; empty vectors: not there. A single-plane layer has its plane as K.
  std::vector<Plane> planes;
};

// What is not there is an empty vector, of all layers or of one.
class CalibrationArtefact {
 public:
  struct Contents {
    Fingerprint model;
    KvGeometry geometry;
    std::uint64_t tokens = 0;                       // calibrated on
    std::string source;                             // names of the data, for people
    std::vector<ChannelStatistics> statistics;      // [2 * layer + kind]; empty vectors: not there
    std::vector<EntropyClasses> entropy;            // ascending alphabets
    std::vector<KarhunenLoeve> klt_heads;           // [2 * layer + kind], a group per head
    std::vector<KarhunenLoeve> klt_joint;           // [2 * layer + kind], one group of all heads
    std::vector<QueryStatistics> query_statistics;  // [layer]
    // [layer][kv_head], 0..1: how far back the head looks; retrieval heads have high scores,
    // streaming heads (sinks and recent tokens) low ones. docs/CALIBRATION.md has the definition.
    std::vector<std::vector<float>> head_scores;
    std::vector<Whitening> whitening;    // [2 * layer + kind]
    std::vector<Predictor> predictors;   // [2 * layer + kind]
    std::uint32_t predictor_layers = 1;  // before a layer, that its planes are predicted from; 1..8
    std::optional<CodeTables> code_tables;
    AttentionProfile attention_profile;  // no planes: not there
    FrameExpectation frame_expectation;  // likewise
  };

  CalibrationArtefact(Contents contents, Fingerprint fingerprint);
  ~CalibrationArtefact();
  CalibrationArtefact(const CalibrationArtefact&) = delete;
  CalibrationArtefact& operator=(const CalibrationArtefact&) = delete;

  [[nodiscard]] const Fingerprint& fingerprint() const { return fingerprint_; }
  [[nodiscard]] const Contents& contents() const { return contents_; }
  // Null when the artefact has none for this plane.
  [[nodiscard]] const ChannelStatistics* statistics(std::uint32_t layer, PlaneKind kind) const;
  // Null when it has none of this plane or layer.
  [[nodiscard]] const KarhunenLoeve* klt_heads(std::uint32_t layer, PlaneKind kind) const;
  [[nodiscard]] const KarhunenLoeve* klt_joint(std::uint32_t layer, PlaneKind kind) const;
  [[nodiscard]] const QueryStatistics* query_statistics(std::uint32_t layer) const;
  [[nodiscard]] const std::vector<float>* head_scores(std::uint32_t layer) const;  // [kv_head]
  // Null when it has none of this plane.
  [[nodiscard]] const AttentionProfile::Plane* attention(std::uint32_t layer, PlaneKind kind) const;
  [[nodiscard]] const Whitening* whitening(std::uint32_t layer, PlaneKind kind) const;
  [[nodiscard]] const Predictor* predictor(std::uint32_t layer, PlaneKind kind) const;
  [[nodiscard]] std::uint32_t predictor_layers() const { return contents_.predictor_layers; }
  // Null when it has none.
  [[nodiscard]] const CodeTables* code_tables() const;
  // z = (x - mean) times this, [group][column][component]: the inverse of Whitening::inverse, found
  // at the first call for a plane and kept; the same on every machine. 2 columns^3 operations per
  // group then. kMismatch when there is no such plane, kCorruptData when its matrix is singular.
  [[nodiscard]] Result<std::span<const float>> whitening_forward(std::uint32_t layer,
                                                                 PlaneKind kind) const;
  // scale times Whitening::inverse, [group][component][column]; found and kept likewise.
  [[nodiscard]] Result<std::span<const float>> whitening_inverse(std::uint32_t layer,
                                                                 PlaneKind kind) const;
  // [2 * layer + kind]: the predictors as kernels read them, whose form is theirs.
  [[nodiscard]] const KeptValues& packed_predictors() const { return packed_predictors_; }
  // Null when it has none for this alphabet.
  [[nodiscard]] const EntropyClasses* entropy(std::uint32_t alphabet) const;

 private:
  struct WhiteningMatrices;  // of one plane, when they are first needed

  Contents contents_;
  Fingerprint fingerprint_;
  KeptValues packed_predictors_;
  std::unique_ptr<WhiteningMatrices[]> matrices_;  // [2 * layer + kind]
};

}  // namespace kvserve
