// Tells KV that is unlike the texts of its calibration artefact, so that it is encoded without it.
#pragma once

#include <cstdint>
#include <vector>

#include "kvserve/codec.h"
#include "kvserve/error.h"
#include "library/calibration_artefact.h"
#include "pipeline/chain.h"
#include "pipeline/frame_statistics.h"

namespace kvserve {

// What the frames of one request have looked like so far: one frame says little, several much.
class DriftMemory {
 public:
  struct Frame {
    TokenRange tokens;
    std::uint32_t first_layer = 0;
    double code_length_ratio = 0.0;
    bool near_end = false;  // where tokens are finer
    std::vector<PlaneDistance> planes;
  };

  // Drops what follows the frame, and the frame itself if it comes again.
  void Add(Frame frame);
  // Means over the frames.
  [[nodiscard]] FrameDrift Drift(Arena& arena) const;
  [[nodiscard]] bool near_end() const;  // all of them are

 private:
  std::vector<Frame> frames_;
};

// Of one profile and artefact, which outlive it.
class DriftGuard {
 public:
  // kInvalidArgument when the artefact has no frame expectation to compare with.
  [[nodiscard]] static Result<DriftGuard> Create(const Profile& profile,
                                                 const CalibrationArtefact& artefact);

  // What is to be known of a frame that took so many bytes of classes and symbols, and of the
  // frames before it in `memory` (null: none). Sets cause and reason when a quantity is out of
  // bounds. `prompt_tokens` 0: not known. Scratch comes from `arena`.
  [[nodiscard]] Result<FrameDrift> Judge(const ConstKvView& view, std::uint32_t prompt_tokens,
                                         std::uint64_t coded_bytes, DriftMemory* memory,
                                         Arena& arena) const;

 private:
  DriftGuard(const CalibrationArtefact& artefact, double expected_bits)
      : artefact_(&artefact), expected_bits_(expected_bits) {}

  const CalibrationArtefact* artefact_;
  double expected_bits_;  // per value; 0: not known
};

}  // namespace kvserve
