#include "pipeline/code_contexts.h"

#include <algorithm>

#include "base/try.h"
#include "kernels/rans/context_rows.h"
#include "kernels/rans/token_energy.h"
#include "pipeline/token_classes.h"
#include "pipeline/token_pieces.h"

namespace kvserve {
namespace {

static_assert(kCodeTables == kContextTables && kCodeEscape == kContextEscape);
static_assert(kCodeClasses == kTokenClasses);

constexpr std::size_t kNotKept = kTokenClasses;
constexpr std::int32_t kNotKeptShift = -1000;  // below what any other shift makes good

std::size_t ClassOf(const SymbolPlane& plane, std::size_t row) {
  if (plane.token_classes.empty()) return kNominalClass;
  return std::min<std::size_t>(plane.token_classes[row], kNotKept);
}

std::int32_t LevelOf(std::span<const std::int8_t> columns, std::int32_t shift,
                     std::span<const std::uint16_t> mean_size) {
  std::vector<std::uint8_t> indices(columns.size());
  ContextIndices(columns, shift, indices);
  std::uint64_t sum = 0;
  for (const std::uint8_t index : indices) sum += mean_size[index];
  return ExpectedLevel(sum);
}

}  // namespace

void ContextModel::AddPoint(const CodeTables::Point& point,
                            std::span<const std::uint16_t> mean_size) {
  auto& planes = points_.emplace_back();
  for (const CodeTables::Plane& from : point.planes) {
    const std::span<const std::int8_t> columns = columns_.emplace_back(from.column);
    PlaneContexts& plane = planes.emplace_back(PlaneContexts{.columns = columns});
    plane.energy = from.energy;
    std::copy(from.klass.begin(), from.klass.end(), plane.shift.begin());
    plane.shift[kNotKept] = kNotKeptShift;
    for (std::size_t c = 0; c < kTokenClasses; ++c) {
      plane.expected_level[c] = LevelOf(columns, plane.shift[c], mean_size);
    }
  }
}

Result<std::shared_ptr<const ContextModel>> ContextModel::Create(
    const CalibrationArtefact& artefact) {
  const CodeTables* const tables = artefact.code_tables();
  if (tables == nullptr) {
    return MakeError(ErrorCode::kMismatch, "the calibration artefact has no code tables");
  }
  const auto model = std::make_shared<ContextModel>();
  KVSERVE_TRY(FillContextTables(tables->frequencies, model->tables_));
  for (const CodeTables::Point& point : tables->points) {
    model->AddPoint(point, tables->mean_size);
  }
  if (model->points_.empty() || model->points_.size() > kMostPoints) {
    return MakeError(ErrorCode::kCorruptData, "code tables are not of 1..64 operating points");
  }
  return model;
}

const PlaneContexts* ContextModel::plane(std::size_t point, std::uint32_t layer, PlaneKind kind,
                                         std::uint32_t columns) const {
  const auto& planes = points_[point];
  const std::size_t index = 2 * std::size_t{layer} + static_cast<std::size_t>(kind);
  if (index >= planes.size() || planes[index].columns.size() != columns) return nullptr;
  return &planes[index];
}

void FindContexts(const ContextModel& model, std::size_t point, std::span<const SymbolPlane> planes,
                  std::span<ContextPlane> found) {
  constexpr std::uint32_t kAlphabet = kCodeSymbols;
  for (std::size_t p = 0; p < planes.size(); ++p) {
    const SymbolPlane& plane = planes[p];
    found[p] = {};
    if (plane.alphabet != kAlphabet || !HasChoice(plane)) continue;
    found[p].contexts = model.plane(point, plane.layer, plane.kind, plane.columns);
    // Layers ascend, so what is of interest is near.
    for (std::size_t q = p; q-- > 0 && planes[q].layer + 1 >= plane.layer;) {
      if (!HasChoice(planes[q])) continue;
      if (planes[q].layer == plane.layer && planes[q].kind == plane.kind)
        found[p].contexts = nullptr;
      if (found[q].contexts == nullptr) continue;
      if (planes[q].layer + 1 == plane.layer) {
        found[p].before[static_cast<std::size_t>(planes[q].kind)] = q;
      } else if (plane.kind == PlaneKind::kValue && planes[q].kind == PlaneKind::kKey) {
        found[p].before[2] = q;
      }
    }
  }
}

void CodedRows::SetEnergy(std::size_t row) {
  if (found.contexts == nullptr) return;
  const std::size_t token_class = ClassOf(*plane, row);
  std::int32_t& energy = energies[row - first];
  energy = 0;
  if (token_class == kNotKept) return;
  energy = TokenEnergy(SumSizes(SymbolsOf(*plane, {row, row + 1})),
                       found.contexts->expected_level[token_class]);
}

void CodedRows::FillIndices(std::int32_t shift, std::span<std::uint8_t> indices) const {
  if (found.contexts != nullptr) {
    return ContextIndices(found.contexts->columns, std::clamp(shift, -128, 127), indices);
  }
  constexpr std::int32_t kLast = kCodeTables - 1;
  const std::int32_t index = std::clamp(kUnitCodeTable + shift, 0, kLast);
  std::fill(indices.begin(), indices.end(), static_cast<std::uint8_t>(index));
}

std::int32_t RowShift(std::span<const CodedRows> planes, std::size_t index, std::size_t row,
                      bool energy) {
  const CodedRows& rows = planes[index];
  const PlaneContexts* const contexts = rows.found.contexts;
  if (contexts == nullptr) return 0;
  const std::int32_t by_class = contexts->shift[ClassOf(*rows.plane, row)];
  if (!energy) return by_class;
  std::array<std::int32_t, 3> energies{};
  for (std::size_t i = 0; i < energies.size(); ++i) {
    if (rows.found.before[i] == ContextPlane::kNone) continue;
    const CodedRows& before = planes[rows.found.before[i]];
    const std::int64_t at = RowOfSameToken(*before.plane, *rows.plane, row);
    if (at >= 0) energies[i] = before.energies[static_cast<std::size_t>(at) - before.first];
  }
  return by_class + EnergyShift(contexts->energy, energies);
}

}  // namespace kvserve
