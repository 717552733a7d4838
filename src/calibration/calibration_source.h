// Where the KV to calibrate on comes from.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/engine.h"
#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/view.h"

namespace kvserve {

// One thread at a time.
class CalibrationSource {
 public:
  virtual ~CalibrationSource() = default;
  [[nodiscard]] virtual const KvGeometry& geometry() const = 0;
  [[nodiscard]] virtual const Fingerprint& model() const = 0;  // all zero: not known
  // Tokens that one pass gives.
  [[nodiscard]] virtual std::uint64_t tokens() const = 0;
  // Gives the KV of all texts in chunks of `chunk_tokens`, the last one of each text shorter, in
  // the same order at every call. The view is valid during the call of `visit`, whose error ends
  // the pass.
  [[nodiscard]] virtual Status ForEachChunk(
      std::uint32_t chunk_tokens, const std::function<Status(const ConstKvView&)>& visit) = 0;
  // As Engine::TapQueries, for the passes that follow: a text's queries come before the chunk that
  // holds their tokens. kUnsupported from captured KV, which has no queries.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the tap
  [[nodiscard]] virtual Status TapQueries(QueryTap /*tap*/) {
    return MakeError(ErrorCode::kUnsupported, "captured KV holds no queries");
  }
};

}  // namespace kvserve
