// What a prefill node tells of a request whose KV was unlike the texts of the calibration artefact.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace kvserve {

struct DriftedRequest {
  std::string profile;   // asked for
  std::string fallback;  // that encoded some of it
  std::uint32_t chunks = 0;
  std::uint32_t drifted_chunks = 0;
  std::string cause;   // of the first: FrameDrift::cause and reason
  std::string reason;  // likewise
};

// Called once for such a request, when it has been sent, from any thread.
using DriftNotice = std::function<void(const DriftedRequest&)>;

}  // namespace kvserve
