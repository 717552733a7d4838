#include "calibration/frame_expectation.h"

#include <cmath>
#include <vector>

#include "base/token_slice.h"
#include "base/try.h"
#include "calibration/transform/calibration_texts.h"
#include "pipeline/frame_statistics.h"

namespace kvserve {
namespace {

// Mean and standard deviation of what has been added.
struct Moments {
  double count = 0;
  double sum = 0;
  double squares = 0;
  void Add(double value) {
    count += 1;
    sum += value;
    squares += value * value;
  }
  [[nodiscard]] double mean() const { return sum / count; }
  [[nodiscard]] double spread() const {
    return std::sqrt(std::max(0.0, squares / count - mean() * mean()));
  }
};

// A plane that never changes is there all the same.
constexpr double kLeastSpread = 1e-3;

}  // namespace

Result<FrameExpectation> MeasureExpectation(std::span<const ConstKvView> texts,
                                            const CalibrationArtefact& artefact,
                                            std::uint32_t frame_tokens, Workers& workers) {
  std::vector<ConstKvView> frames;
  for (const ConstKvView& text : texts) {
    for (std::uint32_t end = frame_tokens; end <= text.tokens.size(); end += frame_tokens) {
      const std::uint32_t begin = text.tokens.begin + end - frame_tokens;
      frames.push_back(SliceTokens(text, {begin, begin + frame_tokens}));
    }
  }
  if (frames.size() < 2) {
    return MakeError(ErrorCode::kBadInput, "there are less than two frames to learn from");
  }
  std::vector<std::vector<PlaneStatistics>> found(frames.size());
  KVSERVE_TRY(workers.Run(frames.size(), [&](std::size_t i, Arena& scratch) -> Status {
    KVSERVE_ASSIGN(const auto planes, MeasureFrame(frames[i], artefact, scratch));
    found[i].assign(planes.begin(), planes.end());
    return {};
  }));
  FrameExpectation expectation{.frame_tokens = frame_tokens, .planes = {}, .in_kind = false};
  for (std::size_t p = 0; p < found[0].size(); ++p) {
    Moments energy;
    Moments gain;
    for (const auto& frame : found) {
      if (!frame[p].measured) continue;
      energy.Add(frame[p].energy);
      gain.Add(frame[p].gain);
    }
    auto& plane = expectation.planes.emplace_back();
    if (energy.count < 2) continue;
    plane = {static_cast<float>(energy.mean()),
             static_cast<float>(std::max(energy.spread(), kLeastSpread)),
             static_cast<float>(gain.mean()), static_cast<float>(gain.spread())};
  }
  return expectation;
}

Result<FrameExpectation> MeasureInKind(CalibrationSource& texts,
                                       const CalibrationArtefact& artefact,
                                       std::uint32_t frame_tokens, Workers& workers) {
  CalibrationTexts kept(texts.geometry());
  const std::uint32_t chunk_tokens = std::min(frame_tokens, WholeChunkTokens(texts.geometry()));
  KVSERVE_TRY(
      texts.ForEachChunk(chunk_tokens, [&](const ConstKvView& chunk) { return kept.Add(chunk); }));
  std::vector<ConstKvView> views;
  for (std::size_t i = 0; i < kept.texts().size(); ++i) views.push_back(kept.View(i));
  KVSERVE_ASSIGN(FrameExpectation expectation,
                 MeasureExpectation(views, artefact, frame_tokens, workers));
  expectation.in_kind = true;
  return expectation;
}

}  // namespace kvserve
