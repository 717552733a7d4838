// Statistics of queries before RoPE, and head scores, from texts that a model is running on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "calibration/row_covariance.h"
#include "kvserve/error.h"
#include "kvserve/view.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// Queries come from a QueryTap, keys from the chunks that are captured behind them; a text begins
// with queries at position 0. Token 0 of each text is left out. One thread at a time.
class QueryMoments {
 public:
  explicit QueryMoments(const KvGeometry& geometry);

  // As a QueryTap; `values` [token, head, dim] before RoPE.
  void AddQueries(std::uint32_t layer, std::uint32_t first_position, std::span<const float> values,
                  std::uint32_t heads, std::uint32_t dim);
  // Keys of a chunk; those without queries before them (of captured files) are not counted.
  [[nodiscard]] Status AddKeys(const ConstKvView& chunk);
  // Ends the last text; sets query_statistics and head_scores as far as asked.
  void Store(bool statistics, bool scores, CalibrationArtefact::Contents& contents);

 private:
  struct Layer {
    std::optional<RowCovariance> all;  // over all texts
    std::uint32_t heads = 0;
    // Of the text in hand.
    std::uint32_t query_tokens = 0;
    std::uint32_t key_tokens = 0;  // [0, key_tokens) of it have been seen,
    std::uint32_t key_rows = 0;    // and so many of them are in the sum
    std::vector<double> query_sum, key_sum;
    // Over all texts.
    std::vector<double> score_sum;  // [kv_head]
    std::uint32_t texts = 0;
  };
  void EndText(std::uint32_t index);

  KvGeometry geometry_;
  std::vector<Layer> layers_;
  std::vector<float> floats_;
};

}  // namespace kvserve
