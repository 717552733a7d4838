// Tells frames that are unlike the texts of their calibration artefact, so that they are encoded
// without it.
#pragma once

#include <cstdint>

#include "kvserve/codec.h"
#include "kvserve/error.h"
#include "library/calibration_artefact.h"
#include "pipeline/chain.h"

namespace kvserve {

// Of one profile and artefact, which outlive it.
class DriftGuard {
 public:
  // kInvalidArgument when the artefact has no frame expectation to compare with.
  [[nodiscard]] static Result<DriftGuard> Create(const Profile& profile,
                                                 const CalibrationArtefact& artefact);

  // What is to be known of a frame that took so many bytes of classes and symbols. Sets reason when
  // a quantity is out of bounds. Scratch comes from `arena`.
  [[nodiscard]] Result<FrameDrift> Judge(const ConstKvView& view, std::uint64_t coded_bytes,
                                         Arena& arena) const;

 private:
  DriftGuard(const CalibrationArtefact& artefact, double expected_bits)
      : artefact_(&artefact), expected_bits_(expected_bits) {}

  const CalibrationArtefact* artefact_;
  double expected_bits_;  // per value; 0: not known
};

}  // namespace kvserve
