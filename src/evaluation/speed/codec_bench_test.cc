#include "evaluation/speed/codec_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "kernels/isa/isa.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

KvBuffer Request() {
  return testing::MakeChunk(testing::MakeGeometry(DType::kFloat16, {{2, 16, 16}}), {0, 100});
}

std::vector<CodecRow> RunTiny(std::span<const CodecCase> cases,
                              std::vector<std::string> isas = {}) {
  const auto data = KvSet::Create("tiny", Request(), 100, 1);
  EXPECT_TRUE(data);
  std::vector<CodecRow> rows;
  const auto status = RunCodecBench(*data, cases, {std::move(isas), 0.0},
                                    [&](const CodecRow& row) { rows.push_back(row); });
  EXPECT_TRUE(status) << status.error().message;
  return rows;
}

TEST(CodecBench, FramesLongerThanTheRequestAreMeasuredOnce) {
  const std::vector<std::string> names = {"uniform|rans"};
  const std::vector<std::uint32_t> frames = {64, 100, 256, kMaxTokens};
  const auto rows = RunTiny(*CrossCases(names, frames, std::vector<std::uint32_t>{1, 2}));
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].frame_tokens, 64U);
  EXPECT_FALSE(rows[0].whole_request);
  EXPECT_EQ(rows[1].threads, 2U);
  EXPECT_EQ(rows[2].frame_tokens, 100U);
  EXPECT_TRUE(rows[2].whole_request);
  EXPECT_GT(rows[2].speed.compression_ratio(), rows[0].speed.compression_ratio() * 0.9);
}

TEST(CodecBench, RunsOnEveryInstructionSetAndLeavesIt) {
  const std::string before(ActiveIsa());
  std::vector<std::string> isas;
  for (const auto isa : AvailableIsas()) isas.emplace_back(isa);
  const std::vector<std::string> names = {kHeadlineProfile};
  const auto rows = RunTiny(
      *CrossCases(names, std::vector<std::uint32_t>{64}, std::vector<std::uint32_t>{1}), isas);
  ASSERT_EQ(rows.size(), isas.size());
  for (std::size_t i = 0; i < isas.size(); ++i) EXPECT_EQ(rows[i].isa, isas[i]);
  EXPECT_EQ(ActiveIsa(), before);
}

TEST(CodecBench, AnUnknownInstructionSetIsRefused) {
  const auto data = KvSet::Create("tiny", Request(), 100, 1);
  ASSERT_TRUE(data);
  const auto status = RunCodecBench(*data, DefaultCases(), {{"mmx"}, 0.0}, [](const CodecRow&) {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
}

TEST(CodecBench, AnErrorNamesTheCase) {
  KvBuffer request = Request();
  testing::SetValue(request.view().layers[0].k, 70, 1, 3, std::numeric_limits<float>::infinity());
  const auto data = KvSet::Create("tiny", std::move(request), 100, 1);
  ASSERT_TRUE(data);
  const auto status = RunCodecBench(*data, DefaultCases(), {{}, 0.0, true}, [](const CodecRow&) {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(status.error().message.substr(0, 8), "uniform|") << status.error().message;
}

TEST(CodecBench, TheDefaultPlanHasEveryFrameSizeOfTheHeadline) {
  std::set<std::uint32_t> frames;
  std::set<std::string> names;
  for (const CodecCase& work : DefaultCases()) {
    names.insert(work.name);
    if (work.name == kHeadlineProfile) frames.insert(work.frame_tokens);
    EXPECT_EQ(work.threads, (std::vector<std::uint32_t>{1, 2}));
  }
  EXPECT_EQ(frames, (std::set<std::uint32_t>{64, 128, 256, kMaxTokens}));
  for (const char* name : {"none", "none|zstd", "lossless", kHeadlineProfile}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(CodecBench, AnArtefactAddsTheProfileItIsFor) {
  const auto names = [](bool calibrated) {
    std::set<std::string> found;
    for (const CodecCase& work : DefaultCases(calibrated)) found.insert(work.name);
    return found;
  };
  EXPECT_FALSE(names(false).contains(kCalibratedProfile));
  EXPECT_TRUE(names(true).contains(kCalibratedProfile));
  EXPECT_EQ(names(true).size(), names(false).size() + 1);
}

// Such as synthetic data beside an artefact of the sample's model.
TEST(CodecBench, AnArtefactOfAnotherModelIsSkippedOnlyIfAskedFor) {
  const auto data = KvSet::Create("tiny", Request(), 100, 1);
  ASSERT_TRUE(data);
  const auto artefact =
      testing::SampleArtefact(testing::MakeGeometry(DType::kFloat16, {{3, 16, 16}}));
  const std::vector<std::string> names = {kCalibratedProfile};
  const auto cases =
      CrossCases(names, std::vector<std::uint32_t>{64}, std::vector<std::uint32_t>{1});
  ASSERT_TRUE(cases);
  std::size_t rows = 0;
  const auto count = [&](const CodecRow&) { ++rows; };
  const auto refused = RunCodecBench(*data, *cases, {{}, 0.0, false, artefact}, count);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
  EXPECT_TRUE(RunCodecBench(*data, *cases, {{}, 0.0, true, artefact}, count));
  EXPECT_EQ(rows, 0U);
}

TEST(CodecBench, AProfileThatIsNoneIsAnError) {
  const std::vector<std::string> names = {"uniform|lzma"};
  EXPECT_FALSE(CrossCases(names, std::vector<std::uint32_t>{64}, std::vector<std::uint32_t>{1}));
}

}  // namespace
}  // namespace kvserve
