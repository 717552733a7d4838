// Static tables of `contexts` and how they are chosen.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

constexpr unsigned kTotal = 4096;
constexpr std::size_t kMaxPoints = 64;

template <typename T, std::size_t kSize>
Status ReadArray(ByteReader& in, std::array<T, kSize>& out) {
  KVSERVE_ASSIGN(const auto bytes, in.GetBytes(kSize * sizeof(T)));
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(out)).begin());
  return {};
}

template <typename T>
void PutArray(const T& array, ByteWriter& out) {
  out.PutBytes(std::as_bytes(std::span(array)));
}

bool Present(const Contents& contents) {
  return contents.code_tables.has_value();
}

void Write(const Contents& contents, ByteWriter& out) {
  const CodeTables& tables = *contents.code_tables;
  for (const auto& table : tables.frequencies) PutArray(table, out);
  PutArray(tables.mean_size, out);
  out.Put(static_cast<std::uint8_t>(tables.has_classes() ? 1 : 0));
  if (tables.has_classes()) {
    for (const auto& kind : tables.classes) {
      for (const auto& row : kind) PutArray(row, out);
    }
  }
  out.PutVarint(tables.points.size());
  for (const auto& point : tables.points) {
    out.Put(point.step);
    out.Put(point.bits_per_value);
    for (const auto& plane : point.planes) {
      out.Put(static_cast<std::uint8_t>(plane.column.empty() ? 0 : 1));
      if (plane.column.empty()) continue;
      PutArray(plane.column, out);
      PutArray(plane.klass, out);
      PutArray(plane.energy, out);
    }
  }
}

Status ReadPoint(ByteReader& in, const KvGeometry& geometry, CodeTables::Point& point) {
  KVSERVE_ASSIGN(point.step, in.Get<float>());
  KVSERVE_ASSIGN(point.bits_per_value, in.Get<float>());
  point.planes.resize(2 * geometry.layers.size());
  for (std::size_t p = 0; p < point.planes.size(); ++p) {
    KVSERVE_ASSIGN(const bool present, ReadPresent(in));
    if (!present) continue;
    const std::size_t columns = PlaneColumns(geometry, p);
    if (columns == 0) return Wrong("contexts of a V plane without dim");
    KVSERVE_TRY(ReadValues(in, columns, point.planes[p].column));
    KVSERVE_TRY(ReadArray(in, point.planes[p].klass));
    KVSERVE_TRY(ReadArray(in, point.planes[p].energy));
  }
  return {};
}

Status Read(ByteReader& in, Contents& contents) {
  CodeTables& tables = contents.code_tables.emplace();
  for (auto& table : tables.frequencies) KVSERVE_TRY(ReadArray(in, table));
  KVSERVE_TRY(ReadArray(in, tables.mean_size));
  KVSERVE_ASSIGN(const bool has_classes, ReadPresent(in));
  if (has_classes) {
    for (auto& kind : tables.classes) {
      for (auto& row : kind) KVSERVE_TRY(ReadArray(in, row));
    }
    // What is there must not pass for what is not.
    if (!tables.has_classes()) return Wrong("a class never occurs");
  }
  KVSERVE_ASSIGN(const auto count, in.GetVarint());
  if (count < 1 || count > kMaxPoints) {
    return Wrong(std::to_string(count) + " operating points are outside 1..64");
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    KVSERVE_TRY(ReadPoint(in, contents.geometry, tables.points.emplace_back()));
  }
  return {};
}

Status CheckTables(const CodeTables& tables) {
  for (std::size_t i = 0; i < kCodeTables; ++i) {
    const auto& table = tables.frequencies[i];
    const std::string where = "table " + std::to_string(i);
    if (std::accumulate(table.begin(), table.end(), 0U) != kTotal) {
      return Wrong(where + ": frequencies do not sum to 4096");
    }
    if (table[kCodeEscape] == 0) return Wrong(where + ": there is no escape");
  }
  if (!tables.has_classes()) return {};
  for (const auto& kind : tables.classes) {
    for (const auto& row : kind) {
      if (std::accumulate(row.begin(), row.end(), 0U) != kTotal) {
        return Wrong("frequencies of classes do not sum to 4096");
      }
      if (std::find(row.begin(), row.end(), 0) != row.end()) return Wrong("a class never occurs");
    }
  }
  return {};
}

Status CheckPoint(const CodeTables::Point& point, float above, const KvGeometry& geometry) {
  if (!(point.step > above) || !std::isnormal(point.step)) {
    return Wrong("steps are not positive, normal and ascending");
  }
  if (!(point.bits_per_value >= 0) || !std::isfinite(point.bits_per_value)) {
    return Wrong("bits per value are negative or not finite");
  }
  if (point.planes.size() != 2 * geometry.layers.size()) {
    return Wrong("an operating point does not have two planes for each layer");
  }
  for (std::size_t p = 0; p < point.planes.size(); ++p) {
    const auto& column = point.planes[p].column;
    if (column.empty() || column.size() == PlaneColumns(geometry, p)) continue;
    return Wrong(PlaneText(p) + std::to_string(column.size()) + " columns have contexts");
  }
  return {};
}

Status Check(const Contents& contents) {
  const CodeTables& tables = *contents.code_tables;
  KVSERVE_TRY(CheckTables(tables));
  if (tables.points.empty() || tables.points.size() > kMaxPoints) {
    return Wrong("the number of operating points is outside 1..64");
  }
  float above = 0;
  for (const auto& point : tables.points) {
    KVSERVE_TRY(CheckPoint(point, above, contents.geometry));
    above = point.step;
  }
  return {};
}

}  // namespace

const CalibrationSection& CodeTablesSection() {
  static const CalibrationSection section = {.kind = 9,
                                             .name = "code_tables",
                                             .present = Present,
                                             .write = Write,
                                             .read = Read,
                                             .check = Check};
  return section;
}

}  // namespace kvserve
