// Mean and scale of every channel, plane by plane. float32: a mean that is rounded to 8 or 11 bits
// leaves part of a large key bias (norms of 600) behind, and the file is read once per process.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/try.h"
#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

bool Present(const Contents& contents) {
  return std::any_of(contents.statistics.begin(), contents.statistics.end(),
                     [](const ChannelStatistics& plane) { return !plane.mean.empty(); });
}

void Write(const Contents& contents, ByteWriter& out) {
  for (const ChannelStatistics& plane : contents.statistics) {
    out.Put(static_cast<std::uint8_t>(plane.mean.empty() ? 0 : 1));
    out.PutBytes(std::as_bytes(std::span(plane.mean)));
    out.PutBytes(std::as_bytes(std::span(plane.scale)));
  }
}

Status Read(ByteReader& in, Contents& contents) {
  contents.statistics.resize(2 * contents.geometry.layers.size());
  for (std::size_t p = 0; p < contents.statistics.size(); ++p) {
    KVSERVE_ASSIGN(const bool present, ReadPresent(in));
    if (!present) continue;
    const std::size_t channels = PlaneColumns(contents.geometry, p);
    if (channels == 0) return MakeError(ErrorCode::kCorruptData, "values of a V plane without dim");
    KVSERVE_TRY(ReadFloats(in, channels, contents.statistics[p].mean));
    KVSERVE_TRY(ReadFloats(in, channels, contents.statistics[p].scale));
  }
  return {};
}

// A subnormal scale would have an infinite inverse.
bool GoodScale(float scale) {
  return scale > 0 && std::isnormal(scale);
}

Status CheckPlane(const ChannelStatistics& plane, std::size_t channels) {
  const auto wrong = [](const std::string& what) {
    return MakeError(ErrorCode::kCorruptData, what);
  };
  if (plane.mean.empty() && plane.scale.empty()) return {};
  if (plane.mean.size() != channels || plane.scale.size() != channels) {
    return wrong(std::to_string(plane.mean.size()) + " means and " +
                 std::to_string(plane.scale.size()) + " scales for " + std::to_string(channels) +
                 " channels");
  }
  for (std::size_t c = 0; c < channels; ++c) {
    if (!std::isfinite(plane.mean[c])) {
      return wrong("mean of channel " + std::to_string(c) + " is not finite");
    }
    if (!GoodScale(plane.scale[c])) {
      return wrong("scale of channel " + std::to_string(c) + " is not a positive normal number");
    }
  }
  return {};
}

Status Check(const Contents& contents) {
  if (contents.statistics.size() != 2 * contents.geometry.layers.size() || !Present(contents)) {
    return MakeError(ErrorCode::kCorruptData, "there is no plane, or not two for each layer");
  }
  for (std::size_t p = 0; p < contents.statistics.size(); ++p) {
    if (auto status = CheckPlane(contents.statistics[p], PlaneColumns(contents.geometry, p));
        !status) {
      return MakeError(status.error().code, PlaneText(p) + status.error().message);
    }
  }
  return {};
}

}  // namespace

const CalibrationSection& ChannelStatisticsSection() {
  static const CalibrationSection section = {.kind = 1,
                                             .name = "channel_statistics",
                                             .present = Present,
                                             .write = Write,
                                             .read = Read,
                                             .check = Check};
  return section;
}

}  // namespace kvserve
