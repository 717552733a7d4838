// Mean logarithms of the sensitivity of tokens, by keys seen and by distance from the prompt's end.
#include <algorithm>
#include <string>

#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;
using Knots = std::vector<std::uint32_t>;

constexpr std::size_t kMostKnots = 64;

bool Present(const Contents& contents) {
  return std::any_of(contents.attention_profile.planes.begin(),
                     contents.attention_profile.planes.end(),
                     [](const AttentionProfile::Plane& plane) { return !plane.level.empty(); });
}

void WriteKnots(const Knots& knots, ByteWriter& out) {
  out.Put(static_cast<std::uint8_t>(knots.size()));
  for (const std::uint32_t knot : knots) out.Put(knot);
}

Status ReadKnots(ByteReader& in, Knots& knots) {
  KVSERVE_ASSIGN(const auto count, in.Get<std::uint8_t>());
  knots.resize(count);
  for (std::uint32_t& knot : knots) {
    KVSERVE_ASSIGN(knot, in.Get<std::uint32_t>());
  }
  return {};
}

void Write(const Contents& contents, ByteWriter& out) {
  const AttentionProfile& profile = contents.attention_profile;
  out.Put(profile.horizon);
  WriteKnots(profile.seen, out);
  WriteKnots(profile.ahead, out);
  WriteKnots(profile.distance, out);
  for (const AttentionProfile::Plane& plane : profile.planes) {
    out.Put(static_cast<std::uint8_t>(plane.level.empty() ? 0 : 1));
    out.PutBytes(std::as_bytes(std::span(plane.level)));
    out.PutBytes(std::as_bytes(std::span(plane.recency)));
  }
}

Status Read(ByteReader& in, Contents& contents) {
  AttentionProfile& profile = contents.attention_profile;
  KVSERVE_ASSIGN(profile.horizon, in.Get<std::uint32_t>());
  KVSERVE_TRY(ReadKnots(in, profile.seen));
  KVSERVE_TRY(ReadKnots(in, profile.ahead));
  KVSERVE_TRY(ReadKnots(in, profile.distance));
  profile.planes.resize(2 * contents.geometry.layers.size());
  for (AttentionProfile::Plane& plane : profile.planes) {
    KVSERVE_ASSIGN(const bool present, ReadPresent(in));
    if (!present) continue;
    KVSERVE_TRY(ReadFloats(in, profile.seen.size() * profile.ahead.size(), plane.level));
    KVSERVE_TRY(ReadFloats(in, profile.distance.size(), plane.recency));
  }
  return {};
}

Status CheckKnots(const Knots& knots, const std::string& name) {
  if (knots.empty() || knots.size() > kMostKnots) {
    return Wrong(name + ": there are " + std::to_string(knots.size()) + " knots, not 1 to " +
                 std::to_string(kMostKnots));
  }
  if (std::adjacent_find(knots.begin(), knots.end(), std::greater_equal<>()) != knots.end() ||
      knots.back() > kMaxTokens) {
    return Wrong(name + ": knots do not ascend within the range of tokens");
  }
  return {};
}

Status Check(const Contents& contents) {
  const AttentionProfile& profile = contents.attention_profile;
  if (profile.planes.size() != 2 * contents.geometry.layers.size() || !Present(contents)) {
    return Wrong("there is no plane, or not two for each of the model's layers");
  }
  KVSERVE_TRY(CheckKnots(profile.seen, "seen"));
  KVSERVE_TRY(CheckKnots(profile.ahead, "ahead"));
  KVSERVE_TRY(CheckKnots(profile.distance, "distance"));
  if (profile.horizon == 0 || profile.horizon > kMaxTokens) return Wrong("no horizon in range");
  if (profile.seen[0] == 0) return Wrong("seen: knots begin with none");
  if (profile.ahead[0] != 0) return Wrong("ahead: knots do not begin with 0");
  for (std::size_t p = 0; p < profile.planes.size(); ++p) {
    const AttentionProfile::Plane& plane = profile.planes[p];
    if (plane.level.empty() && plane.recency.empty()) continue;
    if (plane.level.size() != profile.seen.size() * profile.ahead.size() ||
        plane.recency.size() != profile.distance.size()) {
      return Wrong(PlaneText(p) + "sizes are not those of the knots");
    }
    if (!AllFinite(plane.level) || !AllFinite(plane.recency)) {
      return Wrong(PlaneText(p) + "a value is not finite");
    }
  }
  return {};
}

}  // namespace

const CalibrationSection& AttentionProfileSection() {
  static const CalibrationSection section = {.kind = 10,
                                             .name = "attention_profile",
                                             .present = Present,
                                             .write = Write,
                                             .read = Read,
                                             .check = Check};
  return section;
}

}  // namespace kvserve
