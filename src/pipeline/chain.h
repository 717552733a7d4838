// A profile as a chain of instantiated stages, checked once so that executors need not.
#pragma once

#include <memory>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/profile.h"
#include "pipeline/stage.h"

namespace kvserve {

template <typename Stage>
struct ChainStage {
  const StageInfo* info = nullptr;
  std::unique_ptr<const Stage> stage;
};

// Who wrote the profile decides what a fault in it is: a wrong argument or corrupt bytes.
enum class ProfileOrigin { kCaller, kFrame };

// Immutable after Create; many threads may run it at once. The table's stage infos must outlive it.
class Chain {
 public:
  // Checks kinds, order, versions, device, dtype and every parameter, then makes the stages.
  // kInvalidArgument (from a caller) or kCorruptData (from a frame) for a wrong order, combination
  // or value; kUnsupported for a stage, version, device or dtype that this build does not have.
  [[nodiscard]] static Result<Chain> Create(const std::vector<StageSpec>& stages, StageTable table,
                                            DType dtype, Device device, ProfileOrigin origin);

  // Whether the chain takes values of this dtype; Create has checked one, stages depend on none.
  // kUnsupported for a dtype that this build does not have; kInvalidArgument or kCorruptData for
  // opaque bytes where a stage computes with values.
  [[nodiscard]] Status CheckDType(DType dtype, ProfileOrigin origin) const;

  [[nodiscard]] const std::vector<ChainStage<Selector>>& selectors() const { return selectors_; }
  [[nodiscard]] const std::vector<ChainStage<Transform>>& transforms() const { return transforms_; }
  [[nodiscard]] const ChainStage<Quantizer>& quantizer() const { return quantizer_; }
  [[nodiscard]] const ChainStage<Codec>& codec() const { return codec_; }
  [[nodiscard]] bool native() const { return quantizer_.info->domain == QuantizerDomain::kNative; }
  // Decoding gives the input bit for bit: every stage does.
  [[nodiscard]] bool lossless() const { return lossless_; }
  // A transform predicts from decoded planes, so that planes are coded one after the other.
  [[nodiscard]] bool needs_feedback() const;
  // Frames of the chain name a calibration artefact.
  [[nodiscard]] bool needs_artefact() const { return needs_artefact_; }
  // The first selector that needs the prompt's queries, or that may drop tokens; null when none.
  [[nodiscard]] const StageInfo* query_selector() const;
  [[nodiscard]] const StageInfo* dropping_selector() const;

 private:
  Chain() = default;

  std::vector<ChainStage<Selector>> selectors_;
  std::vector<ChainStage<Transform>> transforms_;
  ChainStage<Quantizer> quantizer_;
  ChainStage<Codec> codec_;
  bool lossless_ = true;
  bool needs_artefact_ = false;
};

}  // namespace kvserve
