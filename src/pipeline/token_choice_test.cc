#include "pipeline/token_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "pipeline/settings.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

// A frame of tokens [10, 20) in layers with V, with a window of 4 and of a single plane.
struct Case {
  Arena arena;
  KvGeometry geometry =
      testing::MakeGeometry(DType::kFloat32, {{1, 2, 2}, {1, 2, 2, 4}, {1, 2, 0}});
  KvBuffer buffer = testing::MakeChunk(geometry, {10, 20});
  ConstKvView view = testing::AsConst(buffer.view());
  FrameContext frame{.geometry = &geometry, .tokens = {10, 20}, .arena = &arena};
  std::vector<std::vector<float>> scores = {std::vector<float>(10), std::vector<float>(4),
                                            std::vector<float>(10)};
  std::vector<std::vector<float>> weights = {std::vector<float>(10, 1), std::vector<float>(10, 1),
                                             std::vector<float>(4, 1), std::vector<float>(4, 1),
                                             std::vector<float>(10, 1)};

  void Weigh(const TokenChoice& choice) {
    const std::vector<std::span<const float>> spans(scores.begin(), scores.end());
    WeighByChoice(choice, frame, view, spans, weights);
  }
};

using Weights = std::vector<float>;

TEST(TokenChoice, OneChoiceHoldsForAllPlanes) {
  Case test;
  test.scores[0] = {0, 5, 0, 1, 0, 0, 0, 0, 0, 0};
  test.scores[1] = {3, 0, 0, 0};  // token 16
  test.scores[2] = {0, 0, 2, 4.5, 0, 0, 0, 0, 0, 0};
  test.Weigh({.keep = 0.3, .outside = 0.25F});
  const Weights chosen = {.25, 1, .25, 1, .25, .25, 1, .25, .25, .25};  // 11 and 13 and 16
  EXPECT_EQ(test.weights[0], chosen);
  EXPECT_EQ(test.weights[1], chosen);
  EXPECT_EQ(test.weights[2], (Weights{1, .25, .25, .25}));
  EXPECT_EQ(test.weights[3], (Weights{1, .25, .25, .25}));
  EXPECT_EQ(test.weights[4], chosen);
}

TEST(TokenChoice, LayersMayChooseEachForItself) {
  Case test;
  test.scores[0] = {0, 5, 0, 1, 0, 0, 0, 0, 0, 0};
  test.scores[1] = {0, 0, 0, 1};
  test.scores[2] = {0, 0, 0, 0, 0, 0, 0, 0, 2, 1};
  test.Weigh({.keep = 0.2, .outside = 0.5F, .per_layer = true});
  EXPECT_EQ(test.weights[0], (Weights{.5, 1, .5, 1, .5, .5, .5, .5, .5, .5}));
  EXPECT_EQ(test.weights[1], test.weights[0]);
  EXPECT_EQ(test.weights[2], (Weights{.5, .5, .5, 1}));  // ceil(0.2 * 4) tokens
  EXPECT_EQ(test.weights[4], (Weights{.5, .5, .5, .5, .5, .5, .5, .5, 1, 1}));
}

TEST(TokenChoice, SinksAndRecentTokensComeFirst) {
  Case test;
  test.scores[0] = {0, 0, 9, 8, 7, 6, 5, 4, 0, 0};
  test.Weigh({.keep = 0.5, .sinks = 11, .kept_from = 18, .outside = 0});
  EXPECT_EQ(test.weights[0], (Weights{1, 0, 1, 1, 0, 0, 0, 0, 1, 1}));
  Case none;
  none.Weigh({.keep = 0.0, .sinks = 11, .kept_from = 18, .outside = 0});
  EXPECT_EQ(none.weights[0], (Weights{1, 0, 0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(none.weights[2], (Weights{0, 0, 1, 1}));
}

TEST(TokenChoice, EqualScoresKeepTheEarlierAndNaNTheLast) {
  Case test;
  test.scores[0] = {NAN, 0, 0, INFINITY, 0, 0, 0, 0, 0, 0};
  test.Weigh({.keep = 0.3, .outside = 0});
  EXPECT_EQ(test.weights[0], (Weights{0, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(TokenChoice, SharesAreRoundedUpAndWeightsMultiplied) {
  for (const double keep : {0.1, 0.3, 0.7, 0.9}) {  // whole numbers of 10 tokens
    Case test;
    test.Weigh({.keep = keep, .outside = 0});
    float kept = 0;
    for (const float weight : test.weights[0]) kept += weight;
    EXPECT_EQ(kept, std::round(keep * 10)) << keep;
  }
  Case test;
  test.Weigh({.keep = 0.11, .outside = 0.25F});
  test.Weigh({.keep = 0.11, .outside = 0.5F});
  EXPECT_EQ(test.weights[0], (Weights{1, 1, .125, .125, .125, .125, .125, .125, .125, .125}));
}

TEST(TokenChoice, AWeightBelowFloat32StillThins) {
  static constexpr ParameterInfo kParameters[] = {OutsideParameter(), KeepParameter(0.5)};
  static constexpr StageInfo kInfo = {.parameters = kParameters};
  const auto from = [](double outside) {
    std::vector<ParameterValue> values = DefaultValues(kInfo);
    values[0].value = outside;
    const Settings settings(kInfo, values);
    const float weight = TokenChoice::From(settings, {}).outside;
    EXPECT_EQ(TokenChoice::MayDrop(settings), weight == 0.0F) << outside;
    return weight;
  };
  EXPECT_EQ(from(0.0), 0.0F);
  EXPECT_EQ(from(0.25), 0.25F);
  EXPECT_EQ(from(1e-50), 0x1p-20F);
}

TEST(TokenChoice, RecentTokensEndWithThePromptIfItsLengthIsKnown) {
  FrameContext frame{.tokens = {100, 200}};
  EXPECT_EQ(RecentBegin(frame, 30), 170U);
  EXPECT_EQ(RecentBegin(frame, 500), 0U);
  frame.prompt_tokens = 1000;
  EXPECT_EQ(RecentBegin(frame, 30), 970U);
}

}  // namespace
}  // namespace kvserve
