// `expected` over the frames of a request, and against the artefact's attention profile.
#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/testing/weighing.h"

namespace kvserve {

const StageEntry& ExpectedStage();

namespace {

using testing::Weighing;
using Options = std::map<std::string, double>;
using Row = std::vector<float>;

float Noise(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  std::uint64_t z = ((std::uint64_t{a} * 8191 + b) * 131 + c) * 257 + d + 1;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return static_cast<float>((z ^ (z >> 31)) >> 40) / 4194304.0F - 2.0F;
}

constexpr std::uint32_t kPrompt = 120;

// Levels of -12 that do not depend on anything, and a recency that falls by `fall` per knot.
AttentionProfile Profile(const KvGeometry& geometry, float fall) {
  AttentionProfile profile{
      .horizon = 100, .seen = {1, 1000}, .ahead = {0}, .distance = {0, 32, 96}, .planes = {}};
  for (std::size_t p = 0; p < 2 * geometry.layers.size(); ++p) {
    profile.planes.push_back({{-12, -12}, {fall, 0, -fall}});
  }
  return profile;
}

// Tokens of one made-up request; a layer of two heads, one of a window, a single plane.
Weighing Frame(TokenRange tokens, float fall = 0) {
  KvGeometry geometry =
      testing::MakeGeometry(DType::kFloat32, {{2, 8, 6}, {1, 8, 4, 40}, {1, 6, 0}});
  geometry.layers[0].rope_style = RopeStyle::kHalves;
  geometry.layers[0].rope_theta = 1e4F;
  Weighing test(geometry, tokens, kPrompt);
  test.FillKeys([](auto l, auto t, auto h, auto d) { return Noise(l, t, h, d); });
  test.FillValues([](auto l, auto t, auto h, auto d) { return Noise(l + 20, t, h, d); });
  test.SetStatistics(
      2, [](auto l, auto h, auto i) { return Noise(l, h, i, 3); },
      [](auto, auto, auto i, auto j) { return i == j ? 1.0F : 0.0F; });
  CalibrationArtefact::Contents contents = test.artefact->contents();
  contents.attention_profile = Profile(geometry, fall);
  test.artefact = std::make_shared<const CalibrationArtefact>(std::move(contents), Fingerprint{});
  test.prompt_tokens = kPrompt;
  return test;
}

const Options kSeen = {{"sinks", 0}, {"recent", 0},       {"k_beta", 0.75}, {"v_beta", 1},
                       {"keys", 1},  {"least", 1.0 / 64}, {"mean", 1},      {"horizon", 100}};

// Of all frames, plane by plane one after the other.
Weighing::Weights WeighFrames(const std::vector<TokenRange>& frames, const Options& options,
                              std::uint32_t prompt_tokens = kPrompt) {
  const auto memory = testing::MakeSelector(ExpectedStage(), options).value()->NewMemory();
  Weighing::Weights all;
  for (const TokenRange& tokens : frames) {
    Weighing frame = Frame(tokens);
    frame.prompt_tokens = prompt_tokens;
    frame.memory = memory.get();
    const auto weights = frame.Weigh(ExpectedStage(), options).value();
    all.resize(weights.size());
    for (std::size_t p = 0; p < weights.size(); ++p) {
      all[p].insert(all[p].end(), weights[p].begin(), weights[p].end());
    }
  }
  return all;
}

// [plane] the last `count` weights.
Weighing::Weights Last(const Weighing::Weights& weights, std::size_t count) {
  Weighing::Weights last;
  for (const Row& row : weights) {
    last.emplace_back(row.end() - static_cast<std::ptrdiff_t>(std::min(count, row.size())),
                      row.end());
  }
  return last;
}

TEST(ExpectedMemory, TheLastFrameIsWeighedAsInOneFrameOfAll) {
  const auto whole = WeighFrames({{0, kPrompt}}, kSeen);
  const auto frames = WeighFrames({{0, 50}, {50, 90}, {90, kPrompt}}, kSeen);
  EXPECT_EQ(Last(frames, 30), Last(whole, 30));
  const auto alone = Frame({90, kPrompt}).Weigh(ExpectedStage(), kSeen).value();
  EXPECT_NE(alone[0], Last(whole, 30)[0]);
}

TEST(ExpectedMemory, AFrameThatComesAgainReplacesWhatItLeft) {
  const auto once = WeighFrames({{0, 50}, {50, 90}, {90, kPrompt}}, kSeen);
  const auto again = WeighFrames({{0, 50}, {50, 90}, {50, 90}, {90, kPrompt}}, kSeen);
  EXPECT_EQ(Last(once, 30), Last(again, 30));
}

TEST(ExpectedMemory, FramesOfSomeLayersEach) {
  const auto memory = testing::MakeSelector(ExpectedStage(), kSeen).value()->NewMemory();
  const auto expected = WeighFrames({{0, 50}, {50, 90}}, kSeen);
  Weighing::Weights last;
  for (const TokenRange tokens : {TokenRange{0, 50}, TokenRange{50, 90}}) {
    for (std::size_t layer = 0; layer < 3; ++layer) {
      Weighing frame = Frame(tokens);
      frame.memory = memory.get();
      frame.only_layer = layer;
      auto weights = frame.Weigh(ExpectedStage(), kSeen).value();
      if (tokens.begin == 0) continue;
      for (Row& row : weights) last.push_back(std::move(row));
    }
  }
  EXPECT_EQ(last, Last(expected, 40));
}

TEST(ExpectedMemory, WithoutTheOptionNothingIsRemembered) {
  Options options = kSeen;
  options["keys"] = 0;
  EXPECT_EQ(testing::MakeSelector(ExpectedStage(), options).value()->NewMemory(), nullptr);
  EXPECT_EQ(Last(WeighFrames({{0, 50}, {50, 90}}, options), 40),
            Frame({50, 90}).Weigh(ExpectedStage(), options).value());
}

TEST(ExpectedMemory, RefusesThatOfAnotherSelector) {
  struct Other : SelectorMemory {
  } other;
  Weighing frame = Frame({0, 50});
  frame.memory = &other;
  const auto refused = frame.Weigh(ExpectedStage(), kSeen);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

// Queries move on with the frames: earlier keys have faded by what the profile says.
TEST(ExpectedMemory, EarlierKeysFadeWhileTheLengthIsUnknown) {
  const auto weigh = [](float fall) {
    const auto memory = testing::MakeSelector(ExpectedStage(), kSeen).value()->NewMemory();
    Weighing::Weights last;
    for (const TokenRange tokens : {TokenRange{0, 60}, TokenRange{60, kPrompt}}) {
      Weighing frame = Frame(tokens, fall);
      frame.prompt_tokens = 0;
      frame.memory = memory.get();
      last = frame.Weigh(ExpectedStage(), kSeen).value();
    }
    float sum = 0;
    for (const float weight : last[1]) sum += std::log2(weight);
    return sum;
  };
  // The frame's own level falls with the profile too, by a mean recency that is the same for both
  // sides; what is left is the share of the earlier keys.
  EXPECT_NE(weigh(0), weigh(4));
}

TEST(ExpectedMemory, OfflineMeansMakeWeightsAbsolute) {
  Options options = kSeen;
  const auto low = Frame({0, kPrompt}).Weigh(ExpectedStage(), options).value();
  Weighing louder = Frame({0, kPrompt});
  CalibrationArtefact::Contents contents = louder.artefact->contents();
  for (auto& plane : contents.attention_profile.planes) plane.level = {-13, -13};
  louder.artefact = std::make_shared<const CalibrationArtefact>(contents, Fingerprint{});
  const auto high = louder.Weigh(ExpectedStage(), options).value();
  for (std::size_t t = 0; t < kPrompt; ++t) {  // beta is 1 for values
    EXPECT_EQ(high[1][t], std::clamp(2 * low[1][t], 1.0F / 64, 64.0F)) << t;
  }
}

TEST(ExpectedMemory, RecencyMovesAFrameByItsPlaceInThePrompt) {
  const auto mean = [](TokenRange tokens, double recency) {
    Options options = kSeen;
    options["recency"] = recency;
    options["mean"] = 0;
    const auto weights = Frame(tokens, 2).Weigh(ExpectedStage(), options).value();
    double sum = 0;
    for (const float weight : weights[1]) sum += std::log2(weight) / tokens.size();
    return sum;
  };
  EXPECT_GT(mean({90, kPrompt}, 1), mean({90, kPrompt}, 0) + 0.5);
  EXPECT_LT(mean({0, 40}, 1), mean({0, 40}, 0) - 0.5);
}

TEST(ExpectedMemory, NamesTheLayerWithoutAProfile) {
  Weighing frame = Frame({0, 50});
  CalibrationArtefact::Contents contents = frame.artefact->contents();
  contents.attention_profile.planes[3] = {};
  frame.artefact = std::make_shared<const CalibrationArtefact>(contents, Fingerprint{});
  const auto lacking = frame.Weigh(ExpectedStage(), kSeen);
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().code, ErrorCode::kMismatch);
  EXPECT_NE(lacking.error().message.find("layer 1"), std::string::npos);
}

}  // namespace
}  // namespace kvserve
