// The committed seeds are alive: undamaged ones decode, and between them they use every stage.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "decode_contract.h"
#include "frame/frame.h"
#include "kvserve/codec.h"
#include "sealed_calibration.h"
#include "sealed_frame.h"
#include "stage_seeds.h"
#include "stages/registry.h"

namespace kvserve::fuzzing {
namespace {

using Bytes = std::vector<std::byte>;

// Damaged seeds have an ending; see make_corpus.cc.
std::vector<std::filesystem::path> GoodSeeds(const char* target) {
  std::vector<std::filesystem::path> seeds;
  const auto folder = std::filesystem::path(KVSERVE_CORPUS_DIR) / target;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().has_extension()) seeds.push_back(entry.path());
  }
  EXPECT_FALSE(seeds.empty()) << target;
  return seeds;
}

Bytes Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

void ExpectDecodes(const Bytes& frame, const std::filesystem::path& seed) {
  KvBuffer out;
  const auto decoded = DecodeFrame(frame, Limits(), out);
  EXPECT_TRUE(decoded) << seed.filename() << ": " << decoded.error().message;
}

TEST(Corpus, FrameSeedsDecode) {
  for (const auto& seed : GoodSeeds("frame_fuzzer")) {
    const Bytes frame = Read(seed);
    const auto view = ReadFrame(frame);
    ASSERT_TRUE(view) << seed.filename();
    // The fuzzer has no artefacts: for it these are frames that it must refuse.
    if (view->header.artefact.empty()) ExpectDecodes(frame, seed);
  }
}

TEST(Corpus, StageSeedsDecodeAndUseEveryStage) {
  std::set<std::uint16_t> used;
  for (const auto& seed : GoodSeeds("stage_fuzzer")) {
    const Bytes frame = SealFrame(Read(seed));
    EXPECT_EQ(UnsealFrame(frame), Read(seed)) << seed.filename();
    const auto view = ReadFrame(frame);
    ASSERT_TRUE(view) << seed.filename();
    if (view->header.artefact.empty()) ExpectDecodes(frame, seed);
    for (const auto& stage : view->header.stages) used.insert(stage.id);
  }
  for (const auto& entry : BuiltinStages()) {
    EXPECT_TRUE(used.contains(entry.info->id))
        << entry.info->name
        << " is in no seed: run make_fuzz_corpus tests/golden/frames fuzz/corpus";
  }
}

TEST(Corpus, HoldsTheSeedsOfEveryStage) {
  const auto expect_in = [](const char* target) {
    const auto folder = std::filesystem::path(KVSERVE_CORPUS_DIR) / target;
    return [folder](const std::string& name, const std::vector<std::uint8_t>&) {
      EXPECT_TRUE(std::filesystem::exists(folder / name))
          << name << ": run make_fuzz_corpus tests/golden/frames fuzz/corpus";
    };
  };
  MakeCodecSeeds(expect_in("codec_fuzzer"));
  MakePiecesSeeds(expect_in("pieces_fuzzer"));
  MakePlaneSeeds(expect_in("plane_fuzzer"));
  MakeIsaSeeds(expect_in("isa_fuzzer"));
}

TEST(Corpus, CalibrationSeedsAreRead) {
  for (const auto& seed : GoodSeeds("calibration_fuzzer")) {
    const Bytes input = Read(seed);
    const auto rest = std::span(input).subspan(1);
    const bool as_it_is = input.front() == std::byte{0};
    const auto artefact =
        ParseCalibration(as_it_is ? Bytes(rest.begin(), rest.end()) : SealCalibration(rest));
    EXPECT_TRUE(artefact) << seed.filename() << ": " << artefact.error().message;
  }
}

// What a fuzzer does, in full for one bit: the envelope stays sound, so the flip reaches the
// stages.
TEST(Corpus, AnyFlippedBitDecodesOrIsCorrupt) {
  constexpr std::size_t kLargest = 1200;
  KvBuffer out;
  for (const auto& seed : GoodSeeds("stage_fuzzer")) {
    Bytes input = Read(seed);
    if (input.size() > kLargest) continue;
    for (std::size_t bit = 0; bit < 8 * input.size(); ++bit) {
      input[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      const auto decoded = DecodeFrame(SealFrame(input), Limits(), out);
      ASSERT_TRUE(decoded || AllowedError(decoded.error().code))
          << seed.filename() << " bit " << bit << ": " << decoded.error().message;
      input[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
  }
}

TEST(Corpus, DamageIsToldApart) {
  for (const auto& seed : GoodSeeds("frame_fuzzer")) {
    const Bytes cut = Read(seed.string() + ".cut");
    KvBuffer out;
    const auto decoded = DecodeFrame(cut, Limits(), out);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code, ErrorCode::kCorruptData);
  }
}

}  // namespace
}  // namespace kvserve::fuzzing
