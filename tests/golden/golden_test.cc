// Frames that must not change: the bytes of an encode, and the values of a decode, are compared
// with committed files. KVSERVE_RECORD_GOLDEN=1 writes them anew; the difference is then reviewed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "frame/frame.h"
#include "golden/frame_files.h"
#include "golden/golden_cases.h"
#include "golden/sample_tensors.h"
#include "kernels/isa/isa_testing.h"
#include "kvserve/codec.h"
#include "pipeline/testing/query_sample.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

using testing::GoldenCase;

std::filesystem::path Folder() {
  return KVSERVE_GOLDEN_DIR;
}

bool Recording() {
  return std::getenv("KVSERVE_RECORD_GOLDEN") != nullptr;
}

std::filesystem::path FrameFile(std::string_view name) {
  return Folder() / "frames" / (std::string(name) + ".kvs");
}

std::filesystem::path ArtefactFile(const GoldenCase& golden) {
  const std::string name = std::string(golden.shape) + "-" + std::string(DTypeName(golden.dtype));
  return Folder() / "artefacts" / (name + (golden.compact ? "-compact.calib" : ".calib"));
}

std::vector<std::byte> MakeArtefact(const GoldenCase& golden) {
  const auto chunk = testing::MakeSampleChunk(golden.shape, golden.dtype);
  return testing::MakeSampleCalibration(chunk.value().buffer.geometry(), golden.compact).value();
}

std::shared_ptr<const CalibrationArtefact> RecordedArtefact(const GoldenCase& golden) {
  if (Recording()) testing::WriteBytes(ArtefactFile(golden), MakeArtefact(golden));
  auto artefact = LoadCalibration(ArtefactFile(golden));
  EXPECT_TRUE(artefact) << artefact.error().message;
  return artefact ? *artefact : nullptr;
}

std::vector<std::byte> Encode(const GoldenCase& golden) {
  auto chunk = testing::MakeSampleChunk(golden.shape, golden.dtype);
  EXPECT_TRUE(chunk) << chunk.error().message;
  const auto profile = ParseProfile(golden.profile);
  EXPECT_TRUE(profile) << profile.error().message;
  if (!chunk || !profile) return {};
  EncodeOptions options;
  for (std::uint8_t i = 0; i < 16; ++i) options.model.bytes[i] = static_cast<std::uint8_t>(16 + i);
  std::vector<std::int32_t> tokens;
  for (std::uint32_t i = 0; i < chunk->buffer.tokens().end; ++i) {
    tokens.push_back(static_cast<std::int32_t>(i * 7 % 1000));
  }
  options.key = PrefixKey(options.model, tokens);
  options.prompt_tokens = chunk->prompt_tokens;
  const testing::QuerySample queries(chunk->buffer.geometry(), chunk->buffer.tokens());
  options.queries = &queries.view();
  CodecOptions codec;
  if (golden.calibrated) codec.calibration = RecordedArtefact(golden);
  auto encoder = FrameEncoder::Create(*profile, codec);
  EXPECT_TRUE(encoder) << encoder.error().message;
  if (!encoder) return {};
  std::vector<std::byte> frame;
  const KvBuffer& buffer = chunk->buffer;
  const auto status = encoder->Encode(buffer.view(), options, frame);
  EXPECT_TRUE(status) << status.error().message;
  return frame;
}

std::string Digest(std::span<const std::byte> frame) {
  KvBuffer buffer;
  const auto decoded = testing::DecodeRecorded(frame, Folder() / "artefacts", buffer);
  EXPECT_TRUE(decoded) << decoded.error().message;
  return decoded ? testing::DecodedDigest(std::as_const(buffer).view()) : "";
}

class Golden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(Golden, EncodesToTheSameBytes) {
  const auto frame = Encode(GetParam());
  ASSERT_FALSE(frame.empty());
  if (Recording()) {
    testing::WriteBytes(FrameFile(GetParam().name), frame);
    auto digests = testing::ReadDigests(Folder() / "decoded.txt");
    digests[std::string(GetParam().name)] = Digest(frame);
    testing::WriteDigests(Folder() / "decoded.txt", digests);
  }
  const auto golden = testing::ReadBytes(FrameFile(GetParam().name));
  ASSERT_FALSE(golden.empty()) << "not recorded: run with KVSERVE_RECORD_GOLDEN=1";
  if (GetParam().foreign_codec) {
    EXPECT_EQ(Digest(frame), Digest(golden));
    return;
  }
  ASSERT_EQ(frame.size(), golden.size());
  const auto differ = std::ranges::mismatch(frame, golden);
  EXPECT_TRUE(frame == golden) << "first difference at byte " << differ.in1 - frame.begin();
}

TEST_P(Golden, DecodesToTheSameValues) {
  const auto golden = testing::ReadBytes(FrameFile(GetParam().name));
  auto digests = testing::ReadDigests(Folder() / "decoded.txt");
  EXPECT_EQ(Digest(golden), digests[std::string(GetParam().name)]);
}

TEST_P(Golden, IsTheSameOnEveryInstructionSet) {
  const auto best = Encode(GetParam());
  const auto digest = Digest(best);
  ForEachIsa([&] {
    EXPECT_TRUE(Encode(GetParam()) == best);
    EXPECT_EQ(Digest(best), digest);
  });
}

// A chain of lossless stages gives back the chunk itself. (A lossy one may, if all tokens stay
// raw.)
TEST_P(Golden, LosslessMeansLossless) {
  const auto golden = testing::ReadBytes(FrameFile(GetParam().name));
  const auto frame = ReadFrame(golden);
  ASSERT_TRUE(frame);
  bool lossless = true;
  for (const auto& stage : frame->header.stages) {
    for (const auto& entry : BuiltinStages()) {
      if (entry.info->id == stage.id) lossless = lossless && entry.info->lossless;
    }
  }
  const auto chunk = testing::MakeSampleChunk(GetParam().shape, GetParam().dtype);
  ASSERT_TRUE(chunk);
  const bool equal = testing::DecodedDigest(chunk->buffer.view()) == Digest(golden);
  EXPECT_TRUE(equal || !lossless);
}

INSTANTIATE_TEST_SUITE_P(Frames, Golden, ::testing::ValuesIn(testing::GoldenCases()),
                         [](const auto& param) {
                           std::string name(param.param.name);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

// Whoever adds a stage pins its bytes.
TEST(GoldenSet, HoldsEveryStageOfTheTable) {
  std::set<std::uint16_t> pinned;
  for (const auto& golden : testing::GoldenCases()) {
    const auto profile = ParseProfile(golden.profile);
    ASSERT_TRUE(profile) << golden.name << ": " << profile.error().message;
    for (const auto& stage : profile->stages) pinned.insert(stage.id);
  }
  for (const auto& entry : BuiltinStages()) {
    EXPECT_TRUE(pinned.contains(entry.info->id))
        << "stage " << entry.info->name << " is in no golden frame: add a line to golden_cases.cc";
  }
}

TEST(GoldenSet, HoldsEveryArtefactThatItsCasesNeed) {
  for (const auto& golden : testing::GoldenCases()) {
    if (!golden.calibrated) continue;
    ASSERT_NE(RecordedArtefact(golden), nullptr);
    EXPECT_EQ(testing::ReadBytes(ArtefactFile(golden)), MakeArtefact(golden)) << golden.name;
  }
}

// The bytes between ```kvsf and ``` of the format's description, comments left out.
std::vector<std::byte> BytesOfTheDocument() {
  std::ifstream file(KVSERVE_FORMAT_DOCUMENT);
  std::vector<std::byte> bytes;
  std::string line;
  bool inside = false;
  while (std::getline(file, line)) {
    if (line.starts_with("```")) inside = line == "```kvsf";
    if (!inside || line.starts_with("```")) continue;
    std::istringstream numbers(line.substr(0, line.find('#')));
    unsigned value = 0;
    while (numbers >> std::hex >> value) bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

TEST(GoldenSet, IsWhatTheDocumentShows) {
  EXPECT_EQ(BytesOfTheDocument(), testing::ReadBytes(FrameFile("none-token-f32")));
}

TEST(GoldenSet, HoldsNoFileWithoutACase) {
  std::set<std::string> names;
  for (const auto& golden : testing::GoldenCases()) names.insert(std::string(golden.name));
  for (const auto& entry : std::filesystem::directory_iterator(Folder() / "frames")) {
    EXPECT_TRUE(names.contains(entry.path().stem().string())) << entry.path().filename();
  }
  for (const auto& [name, digest] : testing::ReadDigests(Folder() / "decoded.txt")) {
    EXPECT_TRUE(names.contains(name)) << "decoded.txt: " << name;
  }
}

}  // namespace
}  // namespace kvserve
