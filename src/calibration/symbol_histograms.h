// How often each symbol occurs, plane by plane and frame by frame, as quantizers give them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/profile.h"
#include "kvserve/view.h"
#include "library/calibration_artefact.h"
#include "pipeline/chain.h"

namespace kvserve {

// Counts of many planes over one alphabet, [plane][symbol].
struct SymbolHistograms {
  std::uint32_t alphabet = 0;
  std::vector<std::uint32_t> counts;

  [[nodiscard]] std::size_t planes() const { return counts.size() / alphabet; }
  [[nodiscard]] std::span<const std::uint32_t> plane(std::size_t i) const {
    return std::span(counts).subspan(i * alphabet, alphabet);
  }
};

using HistogramsByAlphabet = std::map<std::uint32_t, SymbolHistograms>;

// Runs the selectors, transforms and quantizer of one profile over frames; its codec is left out.
class SymbolCounter {
 public:
  // Errors as Chain::Create.
  [[nodiscard]] static Result<SymbolCounter> Create(const Profile& profile, DType dtype);

  // True: Add needs an artefact, with what was calibrated before.
  [[nodiscard]] bool needs_artefact() const { return chain_.needs_artefact(); }
  // Adds one histogram per plane of the frame in which at least two symbols occur. Errors as
  // EncodeFrame.
  [[nodiscard]] Status Add(const ConstKvView& frame, const CalibrationArtefact* artefact,
                           HistogramsByAlphabet& out) const;

 private:
  explicit SymbolCounter(Chain chain) : chain_(std::move(chain)) {}
  Chain chain_;
};

}  // namespace kvserve
