// Whitening of every plane. Rows are of few bits: the forward matrix is the inverse of what they
// say, so their rounding is no error, only another choice of axes.
#include <algorithm>
#include <cmath>
#include <string>

#include "library/sections/packed_values.h"
#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

bool Compact(const Contents& contents) {
  return std::ranges::any_of(contents.whitening, [](const Whitening& plane) {
    return plane.columns != 0 && plane.bits != kMostMatrixBits;
  });
}

bool Present(const Contents& contents) {
  return std::ranges::any_of(contents.whitening,
                             [](const Whitening& plane) { return plane.columns != 0; });
}

void Write(const Contents& contents, ByteWriter& out) {
  for (const Whitening& plane : contents.whitening) {
    out.PutVarint(plane.columns);
    out.PutBytes(std::as_bytes(std::span(plane.mean)));
    out.PutBytes(std::as_bytes(std::span(plane.scale)));
    out.PutBytes(std::as_bytes(std::span(plane.inverse)));
  }
}

void WriteCompact(const Contents& contents, ByteWriter& out) {
  for (const Whitening& plane : contents.whitening) {
    out.PutVarint(plane.columns);
    if (plane.columns == 0) continue;
    out.Put(plane.bits);
    out.PutBytes(std::as_bytes(std::span(plane.mean)));
    out.PutBytes(std::as_bytes(std::span(plane.scale)));
    PutPacked(plane.inverse, plane.bits, out);
  }
}

Status ReadPlanes(ByteReader& in, bool compact, Contents& contents) {
  auto& planes = contents.whitening;
  planes.resize(2 * contents.geometry.layers.size());
  for (std::size_t p = 0; p < planes.size(); ++p) {
    KVSERVE_ASSIGN(const auto columns, in.GetVarint());
    if (columns == 0) continue;
    const std::size_t all = PlaneColumns(contents.geometry, p);
    if (columns > all || all % columns != 0) {
      return Wrong(PlaneText(p) + "groups of " + std::to_string(columns) + " columns of " +
                   std::to_string(all));
    }
    planes[p].columns = static_cast<std::uint32_t>(columns);
    if (compact) {
      KVSERVE_ASSIGN(const auto bits, in.Get<std::uint8_t>());
      KVSERVE_ASSIGN(planes[p].bits, CheckedBits(bits));
    }
    KVSERVE_TRY(ReadFloats(in, all, planes[p].mean));
    KVSERVE_TRY(ReadFloats(in, all, planes[p].scale));
    KVSERVE_TRY(compact ? ReadPacked(in, all * columns, planes[p].bits, planes[p].inverse)
                        : ReadValues(in, all * columns, planes[p].inverse));
  }
  return {};
}

// A row of zeros would make the matrix singular; that it is not singular otherwise is found when it
// is inverted.
Status CheckRows(const Whitening& plane) {
  for (std::size_t row = 0; row < plane.scale.size(); ++row) {
    const float scale = plane.scale[row];
    if (!(scale > 0) || !std::isnormal(scale)) {
      return Wrong("scale of component " + std::to_string(row) + " is not positive and normal");
    }
    const auto values = std::span(plane.inverse).subspan(row * plane.columns, plane.columns);
    if (std::all_of(values.begin(), values.end(), [](std::int8_t v) { return v == 0; })) {
      return Wrong("component " + std::to_string(row) + " is zero");
    }
  }
  return {};
}

Status CheckPlane(const Whitening& plane, std::size_t all) {
  if (plane.columns == 0 && plane.mean.empty() && plane.scale.empty() && plane.inverse.empty()) {
    return {};
  }
  if (plane.columns == 0 || plane.columns > all || all % plane.columns != 0 ||
      plane.mean.size() != all || plane.scale.size() != all ||
      plane.inverse.size() != all * plane.columns) {
    return Wrong("sizes are not those of " + std::to_string(all) + " columns in groups of " +
                 std::to_string(plane.columns));
  }
  if (!AllFinite(plane.mean)) return Wrong("a mean is not finite");
  if (auto fault = MatrixFault(plane.inverse, plane.bits); !fault.empty()) return Wrong(fault);
  return CheckRows(plane);
}

Status Check(const Contents& contents) {
  return CheckPlanes(contents.geometry, contents.whitening, Present(contents),
                     [&](const Whitening& plane, std::size_t p) {
                       return CheckPlane(plane, PlaneColumns(contents.geometry, p));
                     });
}

}  // namespace

const CalibrationSection& WhiteningSection() {
  static const CalibrationSection section = {
      .kind = 7,
      .name = "whitening",
      .present = [](const Contents& contents) { return Present(contents) && !Compact(contents); },
      .write = Write,
      .read = [](ByteReader& in, Contents& to) { return ReadPlanes(in, false, to); },
      .check = Check};
  return section;
}

const CalibrationSection& CompactWhiteningSection() {
  static const CalibrationSection section = {
      .kind = 7,
      .name = "whitening",
      .version = 2,
      .required = true,
      .present = Compact,
      .write = WriteCompact,
      .read = [](ByteReader& in, Contents& to) { return ReadPlanes(in, true, to); },
      .check = Check};
  return section;
}

}  // namespace kvserve
