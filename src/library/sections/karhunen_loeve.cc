// Principal components of every plane, per head and over all heads: two sections of one form.
// float32: a basis rounded to 16 bits would be orthogonal to 1e-4 only, and 8 to 16 bits of keys go
// through it.
#include <cmath>
#include <string>

#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;
using Planes = std::vector<KarhunenLoeve> Contents::*;

constexpr double kNormTolerance = 1e-3;  // of a row of the basis

// Columns of a group.
template <Planes kPlanes>
std::size_t GroupColumns(const KvGeometry& geometry, std::size_t plane) {
  return kPlanes == &Contents::klt_heads ? PlaneDim(geometry, plane)
                                         : PlaneColumns(geometry, plane);
}

template <Planes kPlanes>
bool Present(const Contents& contents) {
  return std::any_of((contents.*kPlanes).begin(), (contents.*kPlanes).end(),
                     [](const KarhunenLoeve& plane) { return plane.columns != 0; });
}

template <Planes kPlanes>
void Write(const Contents& contents, ByteWriter& out) {
  for (const KarhunenLoeve& plane : contents.*kPlanes) {
    out.Put(static_cast<std::uint8_t>(plane.columns == 0 ? 0 : 1));
    out.PutBytes(std::as_bytes(std::span(plane.mean)));
    out.PutBytes(std::as_bytes(std::span(plane.basis)));
    out.PutBytes(std::as_bytes(std::span(plane.variance)));
  }
}

template <Planes kPlanes>
Status Read(ByteReader& in, Contents& contents) {
  auto& planes = contents.*kPlanes;
  planes.resize(2 * contents.geometry.layers.size());
  for (std::size_t p = 0; p < planes.size(); ++p) {
    KVSERVE_ASSIGN(const bool present, ReadPresent(in));
    if (!present) continue;
    const std::size_t all = PlaneColumns(contents.geometry, p);
    const std::size_t columns = GroupColumns<kPlanes>(contents.geometry, p);
    if (columns == 0) return Wrong("values of a V plane without dim");
    planes[p].columns = static_cast<std::uint32_t>(columns);
    KVSERVE_TRY(ReadFloats(in, all, planes[p].mean));
    KVSERVE_TRY(ReadFloats(in, all * columns, planes[p].basis));
    KVSERVE_TRY(ReadFloats(in, all, planes[p].variance));
  }
  return {};
}

// Rows of another length than 1 would amplify or lose values; that they are orthogonal is not
// checked, which would take longer than all else.
Status CheckBasis(const KarhunenLoeve& plane) {
  for (std::size_t row = 0; row * plane.columns < plane.basis.size(); ++row) {
    double norm = 0;
    for (std::size_t c = 0; c < plane.columns; ++c) {
      const double value = plane.basis[row * plane.columns + c];
      norm += value * value;
    }
    if (!(std::fabs(norm - 1) <= kNormTolerance)) {
      return Wrong("row " + std::to_string(row) + " of the basis does not have norm 1");
    }
  }
  return {};
}

Status CheckPlane(const KarhunenLoeve& plane, std::size_t all, std::size_t columns) {
  if (plane.columns == 0 && plane.mean.empty() && plane.basis.empty() && plane.variance.empty()) {
    return {};
  }
  if (plane.columns != columns || plane.mean.size() != all || plane.variance.size() != all ||
      plane.basis.size() != all * columns) {
    return Wrong("sizes are not those of " + std::to_string(all) + " columns in groups of " +
                 std::to_string(columns));
  }
  if (!AllFinite(plane.mean)) return Wrong("a mean is not finite");
  for (std::size_t i = 0; i < all; ++i) {
    const float before = i % columns == 0 ? INFINITY : plane.variance[i - 1];
    if (plane.variance[i] >= 0 && plane.variance[i] <= before && std::isfinite(plane.variance[i])) {
      continue;
    }
    return Wrong("variance of component " + std::to_string(i) +
                 " is negative, not finite or rises");
  }
  return CheckBasis(plane);
}

template <Planes kPlanes>
Status Check(const Contents& contents) {
  return CheckPlanes(contents.geometry, contents.*kPlanes, Present<kPlanes>(contents),
                     [&](const KarhunenLoeve& plane, std::size_t p) {
                       return CheckPlane(plane, PlaneColumns(contents.geometry, p),
                                         GroupColumns<kPlanes>(contents.geometry, p));
                     });
}

template <Planes kPlanes>
CalibrationSection Section(std::uint8_t kind, std::string_view name) {
  return {.kind = kind,
          .name = name,
          .present = Present<kPlanes>,
          .write = Write<kPlanes>,
          .read = Read<kPlanes>,
          .check = Check<kPlanes>};
}

}  // namespace

const CalibrationSection& KltHeadsSection() {
  static const CalibrationSection section = Section<&Contents::klt_heads>(3, "klt_heads");
  return section;
}

const CalibrationSection& KltJointSection() {
  static const CalibrationSection section = Section<&Contents::klt_joint>(4, "klt_joint");
  return section;
}

}  // namespace kvserve
