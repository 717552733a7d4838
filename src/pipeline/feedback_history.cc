#include "pipeline/feedback_history.h"

namespace kvserve {

FeedbackHistory::FeedbackHistory(const Chain& chain) {
  for (const auto& transform : chain.transforms()) {
    histories_.emplace_back().wanted = transform.stage->needs_feedback();
  }
}

std::optional<std::size_t> FeedbackHistory::first() const {
  for (std::size_t i = 0; i < histories_.size(); ++i) {
    if (histories_[i].wanted) return i;
  }
  return std::nullopt;
}

std::span<const DecodedPlane> FeedbackHistory::planes(std::size_t transform) const {
  return histories_[transform].planes;
}

void FeedbackHistory::Record(std::size_t transform, const PlaneContext& plane,
                             ConstRealPlane values) {
  History& history = histories_[transform];
  if (!history.wanted) return;
  const auto& kept = history.storage.emplace_back(values.span().begin(), values.span().end());
  values.data = kept.data();  // moving the outer vector leaves the floats where they are
  history.planes.push_back({plane.layer, plane.kind, plane.tokens, values});
}

void FeedbackHistory::RecordEmpty(const PlaneContext& plane) {
  for (std::size_t i = 0; i < histories_.size(); ++i) Record(i, plane, {});
}

}  // namespace kvserve
