// One kind of section of a calibration artefact: one file beside this, one line in sections.cc for
// each version. Contents are written in the one version that says they are present.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/byte_io.h"
#include "kvserve/error.h"
#include "library/calibration_artefact.h"

namespace kvserve {

struct CalibrationSection {
  using Contents = CalibrationArtefact::Contents;

  std::uint8_t kind = 0;  // in the file; never reused
  std::string_view name;
  std::uint8_t version = 1;
  bool required = false;  // sections that others cannot be understood without
  bool (*present)(const Contents& contents) = nullptr;
  void (*write)(const Contents& contents, ByteWriter& out) = nullptr;
  // Geometry is there already. Bytes are hostile: lengths are checked, values need not be.
  Status (*read)(ByteReader& in, Contents& contents) = nullptr;
  // Values, for writer and reader alike; the message says what is wrong and where.
  Status (*check)(const Contents& contents) = nullptr;
};

// What `check` and `read` say of damage.
inline tl::unexpected<Error> Wrong(const std::string& what) {
  return MakeError(ErrorCode::kCorruptData, what);
}

// Ascending kinds, and ascending versions of a kind.
[[nodiscard]] std::span<const CalibrationSection> CalibrationSections();
// Null for a kind, or a version of it, that this build does not know.
[[nodiscard]] const CalibrationSection* FindCalibrationSection(std::uint8_t kind,
                                                               std::uint8_t version = 1);

[[nodiscard]] const CalibrationSection& ChannelStatisticsSection();
[[nodiscard]] const CalibrationSection& EntropyClassesSection();
[[nodiscard]] const CalibrationSection& KltHeadsSection();
[[nodiscard]] const CalibrationSection& KltJointSection();
[[nodiscard]] const CalibrationSection& QueryStatisticsSection();
[[nodiscard]] const CalibrationSection& CompactQueryStatisticsSection();
[[nodiscard]] const CalibrationSection& HeadScoresSection();
[[nodiscard]] const CalibrationSection& WhiteningSection();
[[nodiscard]] const CalibrationSection& CompactWhiteningSection();
[[nodiscard]] const CalibrationSection& PredictorsSection();
[[nodiscard]] const CalibrationSection& CompactPredictorsSection();
[[nodiscard]] const CalibrationSection& CodeTablesSection();
[[nodiscard]] const CalibrationSection& AttentionProfileSection();
[[nodiscard]] const CalibrationSection& FrameExpectationSection();
[[nodiscard]] const CalibrationSection& InKindExpectationSection();

}  // namespace kvserve
