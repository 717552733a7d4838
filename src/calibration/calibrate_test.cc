#include "calibration/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "calibration/engine_source.h"
#include "calibration/transform/calibration_texts.h"
#include "engine/testing/fake_engine.h"
#include "kvserve/codec.h"
#include "library/calibration_file.h"

namespace kvserve {
namespace {

using testing::FakeEngine;

std::vector<std::vector<Token>> Prompts(const std::vector<std::size_t>& sizes) {
  std::vector<std::vector<Token>> prompts;
  for (const std::size_t size : sizes) {
    auto& prompt = prompts.emplace_back();
    for (std::size_t i = 0; i < size; ++i) {
      prompt.push_back(static_cast<Token>((i * 7 + prompts.size() * 31) % 256));
    }
  }
  return prompts;
}

CalibrationOptions OptionsFor(const std::vector<std::string>& profiles) {
  CalibrationOptions options;
  for (const auto& text : profiles) options.profiles.push_back(ParseProfile(text).value());
  options.frame_tokens = {32, 64};
  return options;
}

TEST(Calibrate, MakesAnArtefactOfTheEnginesModel) {
  FakeEngine engine({});
  EngineSource source(engine, Prompts({100, 65, 3}), 32);
  const auto contents = Calibrate(source, OptionsFor({"hadamard|uniform:k_levels=16,v_levels=8"}));
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(contents->model, engine.info().fingerprint);
  EXPECT_EQ(contents->geometry, engine.info().geometry);
  EXPECT_EQ(contents->tokens, 99U + 64 + 2);
  ASSERT_EQ(contents->statistics.size(), 6U);
  for (const auto& plane : contents->statistics) EXPECT_FALSE(plane.mean.empty());
  ASSERT_EQ(contents->entropy.size(), 2U);
  EXPECT_EQ(contents->entropy[0].alphabet, 8U);
  EXPECT_EQ(contents->entropy[1].alphabet, 16U);
  const auto bytes = FormatCalibration(*contents);
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_TRUE(ParseCalibration(*bytes));
  EXPECT_EQ(engine.open_sequences(), 0);
}

// Layers with windows shorter than the frames hold all tokens of shorter chunks.
TEST(Calibrate, TransformsAreTrainedOnLayersWithShortWindows) {
  FakeEngine engine({.window_tokens = 24});
  EngineSource source(engine, Prompts({100, 70}), 32);
  auto options = OptionsFor({"uniform"});
  auto& transform = options.transform.emplace();
  for (const LayerGeometry& layer : engine.info().geometry.layers) {
    for (const std::uint32_t dim : {layer.k_dim, layer.v_dim}) {
      const std::size_t columns = std::size_t{layer.kv_heads} * dim;
      auto& plane = transform.sensitivity.planes.emplace_back(columns * columns);
      for (std::size_t c = 0; c < columns; ++c) plane[c * (columns + 1)] = 1.0F;
    }
  }
  transform.selectors = ParseProfile("window:recent=8,outside=1|mixed").value();
  transform.frame_tokens = 64;
  const auto contents = Calibrate(source, options);
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(contents->whitening.size(), 2 * engine.info().geometry.layers.size());
  EXPECT_EQ(WholeChunkTokens(engine.info().geometry), 23U);
}

TEST(Calibrate, RepeatsByteForByte) {
  const auto bytes = [] {
    FakeEngine engine({});
    EngineSource source(engine, Prompts({80, 50}), 32);
    return FormatCalibration(Calibrate(source, OptionsFor({"uniform", "lossless"})).value())
        .value();
  };
  EXPECT_EQ(bytes(), bytes());
}

TEST(Calibrate, CodecsDoNotMatter) {
  const auto entropy = [](const std::string& profile) {
    FakeEngine engine({});
    EngineSource source(engine, Prompts({80}), 32);
    return Calibrate(source, OptionsFor({profile}))->entropy.at(0).frequencies;
  };
  EXPECT_EQ(entropy("uniform:levels=5|rans"), entropy("uniform:levels=5|zstd"));
}

TEST(Calibrate, CountsProgressToItsEnd) {
  FakeEngine engine({});
  EngineSource source(engine, Prompts({70, 70}), 32);
  auto options = OptionsFor({"uniform"});
  std::uint64_t last = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 140U);
    last = done;
  };
  ASSERT_TRUE(Calibrate(source, options));
  EXPECT_EQ(last, 140U);
}

TEST(Calibrate, StatisticsAloneAreAnArtefactToo) {
  FakeEngine engine({});
  EngineSource source(engine, Prompts({40}), 32);
  const auto contents = Calibrate(source, OptionsFor({}));
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_TRUE(contents->entropy.empty());
  EXPECT_TRUE(FormatCalibration(*contents));
}

TEST(Calibrate, SaysWhatIsWrong) {
  FakeEngine engine({.nan_token = 5});
  EngineSource poisoned(engine, {{1, 2, 3, 4, 5, 6, 7, 8}}, 32);
  const auto nan = Calibrate(poisoned, OptionsFor({"uniform"}));
  ASSERT_FALSE(nan);
  EXPECT_EQ(nan.error().code, ErrorCode::kBadInput);
  EngineSource short_source(engine, {{1}, {2, 3}}, 32);
  const auto few = Calibrate(short_source, OptionsFor({}));
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(engine.open_sequences(), 0);
  EngineSource source(engine, Prompts({4}), 32);
  auto options = OptionsFor({});
  options.frame_tokens = {0};
  ASSERT_FALSE(Calibrate(source, options));
  EXPECT_EQ(Calibrate(source, options).error().code, ErrorCode::kInvalidArgument);
  options = OptionsFor({});
  options.max_classes = 65;
  EXPECT_FALSE(Calibrate(source, options));
}

TEST(EngineSource, GivesEveryTokenOnceInChunks) {
  FakeEngine engine({});
  EngineSource source(engine, Prompts({100, 10}), 32);
  std::vector<TokenRange> ranges;
  const auto status = source.ForEachChunk(48, [&](const ConstKvView& chunk) -> Status {
    EXPECT_TRUE(CheckView(chunk));
    ranges.push_back(chunk.tokens);
    EXPECT_EQ(chunk.layers[0].tokens, chunk.tokens);
    return {};
  });
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(ranges, (std::vector<TokenRange>{{0, 48}, {48, 96}, {96, 100}, {0, 10}}));
  const auto stopped = source.ForEachChunk(
      48, [](const ConstKvView&) -> Status { return MakeError(ErrorCode::kCancelled, "enough"); });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(engine.open_sequences(), 0);
}

}  // namespace
}  // namespace kvserve
