// How the symbols of calibrated planes find their code tables: by column, token class and the
// energies of the same token in earlier planes. Prepared once from an artefact for many frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/byte_io.h"
#include "kernels/rans/context_tables.h"
#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "library/calibration_artefact.h"
#include "pipeline/stage.h"

namespace kvserve {

// Of one plane at one operating point.
struct PlaneContexts {
  std::span<const std::int8_t> columns;  // [column] index; the model's
  // [class]; the last is for dropped tokens, whose rows have the first table throughout and no
  // energy.
  std::array<std::int32_t, kCodeClasses + 1> shift{};
  std::array<std::int32_t, kCodeClasses + 1> expected_level{};  // see ExpectedLevel
  std::array<std::int16_t, 4> energy{};                         // weights, see EnergyShift
};

inline constexpr std::size_t kMostPoints = 64;

// Immutable, 400 KB and up, for many threads at once.
class ContextModel {
 public:
  // kMismatch when the artefact has no code tables, kCorruptData when they cannot be used.
  [[nodiscard]] static Result<std::shared_ptr<const ContextModel>> Create(
      const CalibrationArtefact& artefact);

  [[nodiscard]] const ContextTables& tables() const { return tables_; }
  [[nodiscard]] std::size_t points() const { return points_.size(); }
  // Null when there is none of this plane with so many columns.
  [[nodiscard]] const PlaneContexts* plane(std::size_t point, std::uint32_t layer, PlaneKind kind,
                                           std::uint32_t columns) const;

 private:
  void AddPoint(const CodeTables::Point& point, std::span<const std::uint16_t> mean_size);

  ContextTables tables_;
  std::vector<std::vector<PlaneContexts>> points_;  // [point][2 * layer + kind]
  std::vector<std::vector<std::int8_t>> columns_;   // that they refer to
};

// Which of a frame's planes come before one of them.
struct ContextPlane {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  const PlaneContexts* contexts = nullptr;  // null: its columns are all alike
  // K and V of the layer before, K of the same layer (for V): as indices, kNone if not there or
  // without contexts.
  std::array<std::size_t, 3> before = {kNone, kNone, kNone};
};

// `planes` is in coding order. A plane has contexts when its alphabet is 255, the model has it, and
// it is the first of its layer and kind that has symbols.
void FindContexts(const ContextModel& model, std::size_t point, std::span<const SymbolPlane> planes,
                  std::span<ContextPlane> found);

// Rows of one plane, and what their tables come from.
struct CodedRows {
  const SymbolPlane* plane = nullptr;
  ContextPlane found;
  std::size_t first = 0;             // row
  std::span<std::int32_t> energies;  // [row - first]

  // Once the row's symbols are known, for the planes behind.
  void SetEnergy(std::size_t row);
  // Table indices of a row that is shifted by this much from its columns'.
  void FillIndices(std::int32_t shift, std::span<std::uint8_t> indices) const;
};

// How far a row of planes[index] is shifted by its class and, if asked for, by energies; without
// the shift of the plane in the frame.
[[nodiscard]] std::int32_t RowShift(std::span<const CodedRows> planes, std::size_t index,
                                    std::size_t row, bool energy);

// What is added to a plane's symbols, so that the middle of every alphabet is coded as 127.
[[nodiscard]] inline std::uint8_t ContextOffset(std::uint32_t alphabet) {
  return static_cast<std::uint8_t>(127 - alphabet / 2);
}

// ---- payload -----------------------------------------------------------------------------------
// docs/FORMAT_STAGES.md, "Codec contexts", has the bytes.

// The byte of each plane: kNoContextShift + shift, or kPackedContexts.
inline constexpr std::uint8_t kPackedContexts = 255;
inline constexpr std::int32_t kNoContextShift = 64;
inline constexpr std::int32_t kMostContextShift = 60;  // either way

struct ContextChoices {
  std::size_t point = 0;  // of the model; its number of points: what suits the frame best
  bool energy = true;
  bool shift = true;
};
// kInternal when a symbol is outside of its plane's alphabet.
[[nodiscard]] Status EncodeContexts(const FrameContext& frame, const ContextModel& model,
                                    const ContextChoices& choices,
                                    std::span<const SymbolPlane> planes, ByteWriter& out);
// Fills the planes' symbols from all of `in`. kCorruptData.
[[nodiscard]] Status DecodeContexts(const FrameContext& frame, const ContextModel& model,
                                    bool energy, ByteReader& in, std::span<SymbolPlane> planes);
[[nodiscard]] std::uint64_t MaxContextBytes(std::span<const SymbolPlane> planes);

}  // namespace kvserve
