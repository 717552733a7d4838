#include "calibration/transform_calibration.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/try.h"
#include "calibration/attention_profile.h"
#include "calibration/frame_expectation.h"
#include "calibration/transform/text_classes.h"

namespace kvserve {

Status CalibrateTransform(const CalibrationTexts& texts, const TransformCalibration& options,
                          CalibrationArtefact::Contents& contents) {
  Workers workers(options.threads);
  if (MatrixSizesOf(texts.geometry(), options.training).query_bits == 8) {
    for (QueryStatistics& layer : contents.query_statistics) RoundCorrelations(layer);
  }
  std::vector<ConstKvView> views;
  for (std::size_t i = 0; i < texts.texts().size(); ++i) views.push_back(texts.View(i));
  const bool queries = std::ranges::any_of(contents.query_statistics,
                                           [](const auto& layer) { return layer.heads > 0; });
  if (queries) {
    KVSERVE_ASSIGN(contents.attention_profile,
                   MeasureAttention(views, contents.query_statistics, options.horizon, workers));
  }
  const CalibrationArtefact so_far(contents, {});
  KVSERVE_ASSIGN(const auto classes,
                 ClassifyTexts(texts, options.selectors, so_far, options.frame_tokens, workers));
  TransformOptions training = options.training;
  training.frame_tokens = options.frame_tokens;
  KVSERVE_TRY(TrainTransform(texts, options.sensitivity, classes, training, workers, contents));
  // As encoders will measure it, on a few tokens of a frame and without their classes.
  const CalibrationArtefact trained(contents, {});
  auto expectation = MeasureExpectation(views, trained, options.frame_tokens, workers);
  if (!expectation && expectation.error().code != ErrorCode::kBadInput) {
    return tl::unexpected(expectation.error());
  }
  contents.frame_expectation = expectation ? std::move(*expectation) : FrameExpectation{};
  return {};
}

}  // namespace kvserve
