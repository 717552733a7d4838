// What is written is read, the same bytes for the same contents, and files say what they are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/hash.h"
#include "library/calibration_file.h"
#include "library/testing/sample_calibration.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;
using testing::SampleCalibration;

std::vector<std::byte> Written(const Contents& contents) {
  auto bytes = FormatCalibration(contents);
  EXPECT_TRUE(bytes) << bytes.error().message;
  return bytes ? *bytes : std::vector<std::byte>{};
}

TEST(CalibrationFile, EverythingComesBack) {
  const Contents contents = SampleCalibration();
  const auto bytes = Written(contents);
  const auto artefact = ParseCalibration(bytes);
  ASSERT_TRUE(artefact) << artefact.error().message;
  const Contents& read = (*artefact)->contents();
  EXPECT_EQ(read.model, contents.model);
  EXPECT_EQ(read.geometry, contents.geometry);
  EXPECT_EQ(read.tokens, contents.tokens);
  EXPECT_EQ(read.source, contents.source);
  ASSERT_EQ(read.statistics.size(), contents.statistics.size());
  for (std::size_t p = 0; p < read.statistics.size(); ++p) {
    EXPECT_EQ(read.statistics[p].mean, contents.statistics[p].mean) << p;
    EXPECT_EQ(read.statistics[p].scale, contents.statistics[p].scale) << p;
  }
  ASSERT_EQ(read.entropy.size(), 2U);
  EXPECT_EQ(read.entropy[0].frequencies, contents.entropy[0].frequencies);
  EXPECT_EQ(read.entropy[1].frequencies, contents.entropy[1].frequencies);
}

TEST(CalibrationFile, FramesNameTheHashOfTheWholeFile) {
  const auto bytes = Written(SampleCalibration());
  const auto artefact = ParseCalibration(bytes);
  ASSERT_TRUE(artefact);
  EXPECT_EQ(CalibrationFingerprint(**artefact), Hash128(bytes));
  EXPECT_EQ(Written(SampleCalibration()), bytes);
  auto other = SampleCalibration();
  other.statistics[0].mean[0] += 0.5F;
  const auto other_artefact = ParseCalibration(Written(other));
  ASSERT_TRUE(other_artefact);
  EXPECT_NE(CalibrationFingerprint(**other_artefact), CalibrationFingerprint(**artefact));
}

TEST(CalibrationFile, LookupsFindWhatIsThere) {
  const auto artefact = ParseCalibration(Written(SampleCalibration()));
  ASSERT_TRUE(artefact);
  ASSERT_NE((*artefact)->statistics(0, PlaneKind::kKey), nullptr);
  EXPECT_EQ((*artefact)->statistics(0, PlaneKind::kKey)->mean.size(), 8U);
  EXPECT_EQ((*artefact)->statistics(1, PlaneKind::kKey), nullptr);    // left out
  EXPECT_EQ((*artefact)->statistics(3, PlaneKind::kValue), nullptr);  // a single plane
  EXPECT_EQ((*artefact)->statistics(99, PlaneKind::kKey), nullptr);
  ASSERT_NE((*artefact)->entropy(4), nullptr);
  EXPECT_EQ((*artefact)->entropy(5), nullptr);
}

TEST(CalibrationFile, SectionsMayBeLeftOut) {
  auto contents = SampleCalibration();
  contents.statistics.clear();
  auto artefact = ParseCalibration(Written(contents));
  ASSERT_TRUE(artefact) << artefact.error().message;
  EXPECT_EQ((*artefact)->statistics(0, PlaneKind::kKey), nullptr);
  contents.entropy.clear();
  artefact = ParseCalibration(Written(contents));
  ASSERT_TRUE(artefact) << artefact.error().message;
  EXPECT_EQ((*artefact)->entropy(4), nullptr);
}

TEST(CalibrationFile, SourceIsMadePrintable) {
  auto contents = SampleCalibration();
  contents.source = "a\n\x1B[2Jb\xC3\xA9" + std::string(5000, 'x');
  const auto artefact = ParseCalibration(Written(contents));
  ASSERT_TRUE(artefact) << artefact.error().message;
  EXPECT_EQ((*artefact)->contents().source.substr(0, 9), "a??[2Jb??");
  EXPECT_EQ((*artefact)->contents().source.size(), kMaxCalibrationSourceBytes);
}

template <typename Change>
void ExpectNotWritten(Change change, const std::string& says) {
  auto contents = SampleCalibration();
  change(contents);
  const auto bytes = FormatCalibration(contents);
  ASSERT_FALSE(bytes) << says;
  EXPECT_EQ(bytes.error().code, ErrorCode::kInvalidArgument) << bytes.error().message;
  EXPECT_NE(bytes.error().message.find(says), std::string::npos) << bytes.error().message;
}

TEST(CalibrationFile, WhatNoReaderWouldTakeIsNotWritten) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  ExpectNotWritten([](Contents& c) { c.statistics[0].scale[3] = 0; },
                   "layer 0 K: scale of channel 3");
  ExpectNotWritten([](Contents& c) { c.statistics[0].scale[3] = -1; }, "scale of channel 3");
  ExpectNotWritten([](Contents& c) { c.statistics[1].scale[0] = 1e-40F; }, "layer 0 V: scale");
  ExpectNotWritten([](Contents& c) { c.statistics[1].scale[0] = INFINITY; }, "scale of channel 0");
  ExpectNotWritten([](Contents& c) { c.statistics[3].mean[1] = kNan; }, "layer 1 V: mean");
  ExpectNotWritten([](Contents& c) { c.statistics[0].mean.pop_back(); }, "7 means and 8 scales");
  ExpectNotWritten([](Contents& c) { c.statistics.pop_back(); }, "not two for each layer");
  ExpectNotWritten([](Contents& c) { c.entropy[0].frequencies[1][0] = 0; }, "alphabet 4, class 1");
  ExpectNotWritten([](Contents& c) { c.entropy[0].frequencies[0][4] = 1; }, "alphabet 4, class 0");
  ExpectNotWritten([](Contents& c) { c.entropy[1].frequencies[0][9] = 17; }, "sum to 4096");
  ExpectNotWritten([](Contents& c) { c.entropy[1].alphabet = 4; }, "does not ascend");
  ExpectNotWritten([](Contents& c) { c.entropy[0].frequencies.clear(); }, "number of classes");
  ExpectNotWritten(
      [](Contents& c) { c.entropy[0].frequencies.resize(65, c.entropy[0].frequencies[0]); },
      "number of classes");
  ExpectNotWritten([](Contents& c) { c.geometry.layers.clear(); }, "layers 0");
}

TEST(CalibrationFile, LoadNamesTheFile) {
  const auto folder = std::filesystem::temp_directory_path();
  const auto path = folder / ("kvserve-calibration-test-" + std::to_string(::getpid()));
  const auto bytes = Written(SampleCalibration());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(LoadCalibration(path));
  std::filesystem::resize_file(path, bytes.size() - 1);
  const auto cut = LoadCalibration(path);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::kCorruptData);
  EXPECT_EQ(cut.error().message.rfind(path.string() + ": calibration artefact: ", 0), 0U);
  std::filesystem::remove(path);
  for (const auto& missing : {path.string(), folder.string()}) {
    const auto none = LoadCalibration(missing);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::kBadInput);
  }
}

}  // namespace
}  // namespace kvserve
