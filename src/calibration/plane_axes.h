// Karhunen-Loeve transforms of every plane of a cache, chunk by chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "calibration/row_covariance.h"
#include "kvserve/error.h"
#include "kvserve/view.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// Of keys before RoPE and of values, without token 0 of each request (an attention sink). One
// thread at a time.
class PlaneAxes {
 public:
  // Planes of at most `joint_columns` columns get a transform over all heads too.
  PlaneAxes(const KvGeometry& geometry, std::size_t joint_columns);

  // A chunk of this geometry. kBadInput names the plane of a value that is not finite.
  [[nodiscard]] Status Add(const ConstKvView& chunk);
  // Sets klt_heads and klt_joint; planes of less than two tokens have none.
  void Store(CalibrationArtefact::Contents& contents) const;

 private:
  KvGeometry geometry_;
  std::size_t joint_columns_;
  std::vector<std::optional<RowCovariance>> planes_;  // [2 * layer + kind]
  std::vector<float> floats_;                         // of the plane in hand
};

}  // namespace kvserve
