#include <algorithm>
#include <array>

#include "library/sections/section.h"

namespace kvserve {

std::span<const CalibrationSection> CalibrationSections() {
  static const std::array sections = {
      ChannelStatisticsSection(), EntropyClassesSection(),    KltHeadsSection(),
      KltJointSection(),          QueryStatisticsSection(),   CompactQueryStatisticsSection(),
      HeadScoresSection(),        WhiteningSection(),         CompactWhiteningSection(),
      PredictorsSection(),        CompactPredictorsSection(), CodeTablesSection(),
      AttentionProfileSection(),  FrameExpectationSection(),  InKindExpectationSection()};
  return sections;
}

const CalibrationSection* FindCalibrationSection(std::uint8_t kind, std::uint8_t version) {
  const auto sections = CalibrationSections();
  const auto found = std::find_if(sections.begin(), sections.end(), [&](const auto& section) {
    return section.kind == kind && section.version == version;
  });
  return found == sections.end() ? nullptr : &*found;
}

}  // namespace kvserve
