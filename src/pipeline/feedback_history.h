// Decoded planes that feedback transforms predict from, kept at each such transform's input domain.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "pipeline/chain.h"

namespace kvserve {

// Holds a float32 copy of every plane of the frame per feedback transform; nothing without one.
class FeedbackHistory {
 public:
  explicit FeedbackHistory(const Chain& chain);

  // Index of the first transform that asks for feedback: how far an encoder has to decode.
  [[nodiscard]] std::optional<std::size_t> first() const;
  // Earlier planes for this transform; empty when it asked for none. Valid until the next Record.
  [[nodiscard]] std::span<const DecodedPlane> planes(std::size_t transform) const;
  // Copies `values`, the plane at the input domain of `transform`; ignored if it asked for none.
  void Record(std::size_t transform, const PlaneContext& plane, ConstRealPlane values);
  // Adds a plane that has no tokens to every history.
  void RecordEmpty(const PlaneContext& plane);

 private:
  struct History {
    bool wanted = false;
    std::vector<std::vector<float>> storage;
    std::vector<DecodedPlane> planes;
  };
  std::vector<History> histories_;  // [transform]
};

}  // namespace kvserve
