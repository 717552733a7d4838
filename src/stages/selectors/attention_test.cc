#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/isa/isa_testing.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/weighing.h"

namespace kvserve {

const StageEntry& AttentionStage();

namespace {

using testing::Weighing;
using Options = std::map<std::string, double>;
using Row = std::vector<float>;

// Numbers without a pattern.
float Noise(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  std::uint64_t z = ((std::uint64_t{a} * 8191 + b) * 131 + c) * 257 + d + 1;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return static_cast<float>((z ^ (z >> 31)) >> 40) / 4194304.0F - 2.0F;
}

// What the stage's comments promise, written plainly in double.
struct Oracle {
  const Weighing& test;
  std::uint32_t observed = 0;
  std::uint32_t pool = 1;

  // Mass of the tokens of one layer.
  std::vector<double> Mass(std::uint32_t layer) const {
    const ConstLayerView kv = test.kv.view().layers[layer];
    const QueryLayer& queries = test.queries.layers[layer];
    const TokenRange given = test.queries.tokens;
    const std::uint32_t window = test.geometry.layers[layer].window_tokens;
    const auto keys = testing::PlaneValues(kv.k);
    std::vector<double> mass(kv.k.tokens, 0.0);
    const std::uint32_t first =
        observed == 0 ? given.begin : given.end - std::min(given.size(), observed);
    for (std::uint32_t q = first; q < given.end; ++q) {
      for (std::uint32_t h = 0; h < queries.heads; ++h) {
        std::vector<double> p(mass.size(), 0.0);
        for (std::uint32_t t = 0; t < mass.size(); ++t) {
          const std::uint32_t at = kv.tokens.begin + t;
          if (at > q || (window > 0 && q - at >= window)) continue;
          double dot = 0.0;
          for (std::uint32_t d = 0; d < queries.dim; ++d) {
            dot +=
                double{queries.values[((q - given.begin) * queries.heads + h) * queries.dim + d]} *
                keys[(t * kv.k.heads + h / (queries.heads / kv.k.heads)) * queries.dim + d];
          }
          p[t] = std::exp(dot / std::sqrt(queries.dim));
        }
        const double sum = std::accumulate(p.begin(), p.end(), 0.0);
        for (std::size_t t = 0; sum > 0 && t < p.size(); ++t) mass[t] += p[t] / sum;
      }
    }
    const std::uint32_t pooled = observed == 0 ? kv.tokens.end : first;
    auto largest = mass;
    for (std::uint32_t t = 0; t < mass.size(); ++t) {
      for (std::uint32_t u = 0; u < mass.size(); ++u) {
        if (kv.tokens.begin + std::max(t, u) >= pooled) continue;
        if (std::max(t, u) - std::min(t, u) <= pool / 2) largest[t] = std::max(largest[t], mass[u]);
      }
    }
    return largest;
  }
};

// The `count` tokens of `scores` that rank first, of those that are not kept anyway.
Row Keep(std::vector<double> scores, std::uint32_t begin, std::size_t count, std::uint32_t sinks,
         std::uint32_t kept_from) {
  for (std::uint32_t t = 0; t < scores.size(); ++t) {
    if (begin + t < sinks || begin + t >= kept_from) scores[t] = 1e9;
  }
  Row row(scores.size(), 0.0F);
  for (std::size_t n = 0; n < count; ++n) {
    const auto best = std::max_element(scores.begin(), scores.end());
    row[static_cast<std::size_t>(best - scores.begin())] = 1.0F;
    *best = -1.0;
  }
  return row;
}

Weighing Noisy(TokenRange tokens, TokenRange queries) {
  Weighing test({{2, 16, 8}, {2, 16, 8, 12}, {1, 24, 0}}, tokens);
  test.FillKeys([](auto l, auto t, auto h, auto d) { return Noise(l, t, h, d); });
  test.FillQueries(queries, 3,
                   [](auto l, auto t, auto h, auto d) { return Noise(l + 9, t, h, d); });
  return test;
}

TEST(Attention, MassOfOneQueryIsItsSoftmax) {
  // Keys along the query by 0, ln 2 and ln 4: masses 1/7, 2/7 and 4/7.
  Weighing test({{1, 1, 1}}, {0, 3});
  test.FillKeys([](auto, auto t, auto, auto) { return static_cast<float>(t) * std::log(2.0F); });
  test.FillQueries({3, 4}, 1, [](auto, auto, auto, auto) { return 1.0F; });
  const Options options = {{"sinks", 0},  {"recent", 0},   {"outside", 0.5},
                           {"keep", 0.6}, {"observed", 0}, {"pool", 1}};
  EXPECT_EQ(test.Weigh(AttentionStage(), options).value()[0], (Row{.5, 1, 1}));
  // A query at token 1 sees two keys only; the opposite one ranks them the other way round.
  test.FillQueries({1, 2}, 1, [](auto, auto, auto, auto) { return -1.0F; });
  EXPECT_EQ(test.Weigh(AttentionStage(), options).value()[0], (Row{1, 1, .5}));
}

TEST(Attention, HeavyHittersAreThoseOfAPlainOracle) {
  const Weighing test = Noisy({0, 70}, {0, 70});
  const Options options = {{"sinks", 2}, {"recent", 5},   {"outside", 0}, {"keep", 0.4},
                           {"scope", 1}, {"observed", 0}, {"pool", 1}};
  const auto weights = test.Weigh(AttentionStage(), options).value();
  EXPECT_EQ(weights[0], Keep(Oracle{test}.Mass(0), 0, 28, 2, 65));
  EXPECT_EQ(weights[1], weights[0]);
  EXPECT_EQ(weights[2], Keep(Oracle{test}.Mass(1), 58, 5, 2, 65));  // a window of 12
  EXPECT_EQ(weights[4], Keep(Oracle{test}.Mass(2), 0, 28, 2, 65));
}

TEST(Attention, ObservedQueriesPoolAndAreKept) {
  // A frame in the middle of the prompt and queries at its end, beyond the frame.
  const Weighing test = Noisy({32, 96}, {90, 130});
  const Oracle oracle{.test = test, .observed = 40, .pool = 5};
  const Options options = {{"sinks", 0}, {"recent", 0},    {"outside", 0}, {"keep", 0.5},
                           {"scope", 1}, {"observed", 40}, {"pool", 5}};
  const auto weights = test.Weigh(AttentionStage(), options).value();
  EXPECT_EQ(weights[0], Keep(oracle.Mass(0), 32, 32, 0, 90));
  EXPECT_EQ(weights[4], Keep(oracle.Mass(2), 32, 32, 0, 90));
}

TEST(Attention, LayersOfARequestDropTheSameTokens) {
  const Weighing test = Noisy({0, 48}, {16, 48});
  auto sum = Oracle{test}.Mass(0);
  const auto window = Oracle{test}.Mass(1);
  const auto last = Oracle{test}.Mass(2);
  for (std::size_t t = 0; t < sum.size(); ++t) sum[t] += last[t] + (t < 36 ? 0 : window[t - 36]);
  const Options options = {{"sinks", 1},   {"recent", 2},   {"outside", 0},
                           {"keep", 0.25}, {"observed", 0}, {"pool", 1}};
  const auto weights = test.Weigh(AttentionStage(), options).value();
  const Row kept = Keep(sum, 0, 12, 1, 46);
  EXPECT_EQ(weights[0], kept);
  EXPECT_EQ(weights[4], kept);
  EXPECT_EQ(weights[2], Row(kept.begin() + 36, kept.end()));
  // Nothing but sinks, recent and observed tokens.
  const Options least = {{"sinks", 1}, {"recent", 2}, {"outside", 0}, {"keep", 0}, {"observed", 3}};
  Row rest(48, 0.0F);
  for (const std::size_t t : {0, 45, 46, 47}) rest[t] = 1.0F;
  EXPECT_EQ(test.Weigh(AttentionStage(), least).value()[0], rest);
}

TEST(Attention, EveryTargetAndThreadCountGivesTheSameWeights) {
  Weighing test = Noisy({0, 100}, {0, 100});
  for (const Options& options : {Options{{"observed", 0}, {"pool", 1}}, Options{{"keep", 0.1}}}) {
    const auto expected = test.Weigh(AttentionStage(), options).value();
    ForEachIsa([&] { EXPECT_EQ(test.Weigh(AttentionStage(), options).value(), expected); });
    test.threads = 3;
    EXPECT_EQ(test.Weigh(AttentionStage(), options).value(), expected);
    test.threads = 1;
  }
}

TEST(Attention, FramesOfOneTokenAndLayersWithoutTokens) {
  Weighing one({{1, 4, 4}}, {5, 6});
  one.FillQueries({0, 9}, 2, [](auto, auto, auto, auto) { return 1.0F; });
  EXPECT_EQ(one.Weigh(AttentionStage(), {{"keep", 0.1}, {"outside", 0}}).value()[0], Row{1});
  EXPECT_EQ(
      one.Weigh(AttentionStage(), {{"keep", 0}, {"outside", 0}, {"observed", 1}, {"recent", 0}})
          .value()[0],
      Row{0});
  Weighing ends({{1, 4, 4}, {1, 4, 4, 2}}, {0, 8}, 20);  // layer 1 holds none of them
  ends.FillQueries({18, 20}, 1, [](auto, auto, auto, auto) { return 1.0F; });
  const auto weights =
      ends.Weigh(AttentionStage(), {{"sinks", 0}, {"recent", 0}, {"keep", 0.5}}).value();
  EXPECT_TRUE(weights[2].empty());
  EXPECT_EQ(std::count(weights[0].begin(), weights[0].end(), 1.0F), 4);
}

TEST(Attention, SaysWhatItNeedsAndWhetherItDrops) {
  const auto drops = testing::MakeSelector(AttentionStage(), {{"outside", 0}}).value();
  EXPECT_TRUE(drops->may_drop());
  EXPECT_TRUE(drops->needs_queries());
  EXPECT_FALSE(testing::MakeSelector(AttentionStage(), {}).value()->may_drop());
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{{"keep", 1.5},
                                                                               {"keep", -0.1},
                                                                               {"pool", 0},
                                                                               {"pool", 1e6},
                                                                               {"observed", 1e6},
                                                                               {"scope", 2},
                                                                               {"outside", -1}}) {
    EXPECT_FALSE(testing::MakeSelector(AttentionStage(), {{name, value}})) << name << " " << value;
  }
}

}  // namespace
}  // namespace kvserve
