// What frames of the calibration texts look like, plane by plane.
#include <string>

#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

bool Present(const Contents& contents) {
  return !contents.frame_expectation.planes.empty() && !contents.frame_expectation.in_kind;
}

bool PresentInKind(const Contents& contents) {
  return !contents.frame_expectation.planes.empty() && contents.frame_expectation.in_kind;
}

void Write(const Contents& contents, ByteWriter& out) {
  out.Put(contents.frame_expectation.frame_tokens);
  for (const FrameExpectation::Plane& plane : contents.frame_expectation.planes) {
    for (const float value : {plane.energy, plane.energy_spread, plane.gain, plane.gain_spread}) {
      out.Put(value);
    }
  }
}

Status Read(ByteReader& in, Contents& contents) {
  FrameExpectation& expectation = contents.frame_expectation;
  KVSERVE_ASSIGN(expectation.frame_tokens, in.Get<std::uint32_t>());
  expectation.planes.resize(2 * contents.geometry.layers.size());
  for (FrameExpectation::Plane& plane : expectation.planes) {
    for (float* const value :
         {&plane.energy, &plane.energy_spread, &plane.gain, &plane.gain_spread}) {
      KVSERVE_ASSIGN(*value, in.Get<float>());
    }
  }
  return {};
}

Status ReadInKind(ByteReader& in, Contents& contents) {
  contents.frame_expectation.in_kind = true;
  return Read(in, contents);
}

Status Check(const Contents& contents) {
  const FrameExpectation& expectation = contents.frame_expectation;
  if (expectation.planes.size() != 2 * contents.geometry.layers.size()) {
    return Wrong("there are not two planes for each of the model's layers");
  }
  if (expectation.frame_tokens == 0 || expectation.frame_tokens > kMaxTokens) {
    return Wrong("frames of " + std::to_string(expectation.frame_tokens) + " tokens");
  }
  for (std::size_t p = 0; p < expectation.planes.size(); ++p) {
    const FrameExpectation::Plane& plane = expectation.planes[p];
    const float values[] = {plane.energy, plane.energy_spread, plane.gain, plane.gain_spread};
    if (!AllFinite(values)) return Wrong(PlaneText(p) + "a value is not finite");
    if (plane.energy_spread < 0 || plane.gain_spread < 0) {
      return Wrong(PlaneText(p) + "a spread is negative");
    }
  }
  return {};
}

}  // namespace

const CalibrationSection& FrameExpectationSection() {
  static const CalibrationSection section = {.kind = 11,
                                             .name = "frame_expectation",
                                             .present = Present,
                                             .write = Write,
                                             .read = Read,
                                             .check = Check};
  return section;
}

// The same bytes, of texts that nothing was trained on.
const CalibrationSection& InKindExpectationSection() {
  static const CalibrationSection section = {.kind = 11,
                                             .name = "frame_expectation",
                                             .version = 2,
                                             .present = PresentInKind,
                                             .write = Write,
                                             .read = ReadInKind,
                                             .check = Check};
  return section;
}

}  // namespace kvserve
