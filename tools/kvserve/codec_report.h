// What encode and decode tell about their work.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "command.h"
#include "kvserve/codec.h"

namespace kvserve::tool {

struct CodecReport {
  std::uint64_t raw_bytes = 0;  // in the cache's dtype
  std::uint64_t wire_bytes = 0;
  std::uint64_t frames = 0;
  std::uint64_t clamped_values = 0;   // limited to the range of a format
  std::uint64_t drift_fallbacks = 0;  // frames that the fallback profile encoded
  std::string drift_reason;           // of the first of those
  double seconds = 0.0;               // in the codec; reading and writing files is not counted
  StageSeconds stage_seconds;
};

// As JSON, or as a table of the same figures; `seconds_key` names report.seconds, and the members
// of the object `extra` are added.
void PrintCodecReport(const Invocation& invocation, const CodecReport& report,
                      const char* seconds_key, nlohmann::json extra);

}  // namespace kvserve::tool
