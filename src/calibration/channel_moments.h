// Mean and standard deviation of every channel of a cache, chunk by chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/view.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// Token 0 of a request is left out: models park attention on it (attention sinks), and its K and V
// lie so far from all others that they would distort every channel. Each chunk is summed in doubles
// in two passes and merged (Chan, Golub and LeVeque 1979), so a mean far beyond the deviation (key
// biases) costs no digits. One thread at a time.
class ChannelMoments {
 public:
  // Planes [2 * layer + kind] of this model.
  explicit ChannelMoments(const KvGeometry& geometry);

  // Host memory; a view that CheckView accepts, of any of the model's layers. kMismatch for another
  // geometry; kBadInput names layer and plane of a value that is not finite.
  [[nodiscard]] Status Add(const ConstKvView& chunk);

  // Tokens counted, of the layer that has most.
  [[nodiscard]] std::uint64_t tokens() const;
  // [2 * layer + kind]; empty for planes of less than two tokens. A scale is at least 1/1024 of the
  // root mean square deviation of its plane, and 1 where the plane never changes.
  [[nodiscard]] std::vector<ChannelStatistics> Statistics() const;

 private:
  struct Plane {
    std::uint64_t count = 0;
    std::vector<double> mean;     // [head * dim]
    std::vector<double> squares;  // sum of squared deviations from the mean
  };
  [[nodiscard]] Status AddPlane(const ConstPlaneView& values, bool skip_first, Plane& plane);

  KvGeometry geometry_;
  std::vector<Plane> planes_;
  std::vector<float> floats_;  // of the plane in hand
};

}  // namespace kvserve
