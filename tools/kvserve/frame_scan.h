// A look at a frame that may be damaged: as much of it as can be trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "frame/frame.h"
#include "kvserve/error.h"

namespace kvserve::tool {

struct ScannedSection {
  SectionKind kind = SectionKind::kSymbols;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  // as stated
  bool checksum_ok = false;
};

struct ScannedFrame {
  std::size_t offset = 0;             // in the file
  std::size_t frame_bytes = 0;        // 0: not known, nothing after this frame can be found
  std::optional<FrameHeader> header;  // only when its checksum holds
  std::vector<ScannedSection> sections;
  std::optional<Error> error;  // what ReadFrame says; empty: the frame is sound

  [[nodiscard]] bool checksum_ok() const { return !error.has_value(); }
};

// The frames of a file. Ends at the first frame whose length cannot be trusted.
[[nodiscard]] std::vector<ScannedFrame> ScanFrames(std::span<const std::byte> bytes);

}  // namespace kvserve::tool
