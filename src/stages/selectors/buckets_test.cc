#include <gtest/gtest.h>

#include "kernels/isa/isa_testing.h"
#include "pipeline/testing/weighing.h"

namespace kvserve {

const StageEntry& BucketsStage();

namespace {

using testing::Weighing;
using Options = std::map<std::string, double>;
using Row = std::vector<float>;

TEST(Buckets, OfACrowdTheNewestStandsForTheRest) {
  // In one dimension a hyperplane is a threshold at the mean, 0: scores 1/3, 1/2, 1 and 1.
  Weighing test({{1, 1, 1}}, {0, 4});
  test.FillKeys([](auto, auto t, auto, auto) { return Row{-3, -2, -1, 6}[t]; });
  Options options = {{"sinks", 0}, {"recent", 0}, {"outside", 0.25}, {"keep", 0.5}};
  EXPECT_EQ(test.Weigh(BucketsStage(), options).value(), Weighing::Weights(2, Row{.25, .25, 1, 1}));
  options["keep"] = 0.75;
  EXPECT_EQ(test.Weigh(BucketsStage(), options).value()[0], (Row{.25, 1, 1, 1}));
}

TEST(Buckets, ABiasOfAllKeysDoesNotCrowdThem) {
  for (const float bias : {0.0F, 500.0F}) {
    Weighing test({{2, 16, 4}}, {0, 6});
    test.FillKeys([&](auto, auto t, auto h, auto d) {
      if (t < 4) return bias + (h == 0 ? 1.0F : 2.0F);  // all alike
      return bias + ((t + d) % 2 == 0 ? 4.0F : -4.0F);
    });
    const Options options = {
        {"sinks", 0}, {"recent", 0}, {"outside", 0}, {"keep", 0.5}, {"bits", 12}};
    EXPECT_EQ(test.Weigh(BucketsStage(), options).value()[0], (Row{0, 0, 0, 1, 1, 1})) << bias;
  }
}

TEST(Buckets, LayersMayDisagreeOnlyWithTheirOwnScope) {
  Weighing test({{1, 1, 1}, {1, 1, 1}, {1, 1, 0}}, {0, 4});
  test.FillKeys([](auto layer, auto t, auto, auto) {
    return layer == 1 ? Row{9, -3, -3, -3}[t] : Row{-3, -2, -1, 6}[t];
  });
  Options options = {{"sinks", 0}, {"recent", 0}, {"outside", 0}, {"keep", 0.5}, {"scope", 1}};
  auto weights = test.Weigh(BucketsStage(), options).value();
  EXPECT_EQ(weights[0], (Row{0, 0, 1, 1}));
  EXPECT_EQ(weights[2], (Row{1, 0, 0, 1}));
  options["scope"] = 0;
  EXPECT_EQ(test.Weigh(BucketsStage(), options).value(),
            Weighing::Weights(5, Row{0, 0, 1, 1}));  // 5/3, 4/3, 5/2 and 3
}

TEST(Buckets, SinksAndRecentTokensAreAlwaysKept) {
  const Weighing test({{2, 8, 8}}, {0, 20});
  const Options options = {{"sinks", 2}, {"recent", 3}, {"outside", 0}, {"keep", 0}};
  Row ends(20, 0.0F);
  for (const std::size_t t : {0, 1, 17, 18, 19}) ends[t] = 1.0F;
  EXPECT_EQ(test.Weigh(BucketsStage(), options).value(), Weighing::Weights(2, ends));
}

TEST(Buckets, EveryTargetAndThreadCountGivesTheSameWeights) {
  Weighing test({{3, 64, 64}, {1, 80, 0}, {2, 8, 8, 16}}, {0, 200});
  const Options options = {{"keep", 0.3}, {"bits", 5}};
  const auto expected = test.Weigh(BucketsStage(), options).value();
  ForEachIsa([&] { EXPECT_EQ(test.Weigh(BucketsStage(), options).value(), expected); });
  test.threads = 3;
  EXPECT_EQ(test.Weigh(BucketsStage(), options).value(), expected);
  EXPECT_NE(test.Weigh(BucketsStage(), {{"keep", 0.3}, {"bits", 5}, {"seed", 2}}).value(),
            expected);
}

TEST(Buckets, FramesOfOneTokenAndLayersWithoutTokens) {
  const Weighing one({{1, 4, 4}}, {5, 6});
  EXPECT_EQ(one.Weigh(BucketsStage(), {{"keep", 0.1}, {"outside", 0}}).value()[0], Row{1});
  const Weighing ends({{1, 4, 4}, {1, 4, 4, 2}}, {0, 8}, 20);
  EXPECT_TRUE(ends.Weigh(BucketsStage(), {}).value()[2].empty());
}

TEST(Buckets, RefusesParametersOutOfRange) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{
           {"bits", 0}, {"bits", 17}, {"seed", -1}, {"seed", 1e10}, {"keep", 2}, {"scope", 3}}) {
    EXPECT_FALSE(testing::MakeSelector(BucketsStage(), {{name, value}})) << name << " " << value;
  }
  EXPECT_TRUE(testing::MakeSelector(BucketsStage(), {{"outside", 0}}).value()->may_drop());
  const auto all = testing::MakeSelector(BucketsStage(), {{"outside", 0}, {"keep", 1}});
  EXPECT_FALSE(all.value()->may_drop());
}

}  // namespace
}  // namespace kvserve
