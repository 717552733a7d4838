#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/isa/isa_testing.h"
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

// Logits of 0, ln 2 and ln 4, so that p is 1/7, 2/7 and 4/7; values 0, 0 and 7.
Weighing Three() {
  Weighing test({{1, 1, 1}}, {0, 3});
  test.FillKeys([](auto, auto t, auto, auto) { return static_cast<float>(t) * std::log(2.0F); });
  test.FillValues([](auto, auto t, auto, auto) { return t == 2 ? 7.0F : 0.0F; });
  test.SetStatistics(
      1, [](auto, auto, auto) { return 1.0F; }, [](auto, auto, auto, auto) { return 0.0F; });
  return test;
}

TEST(Expected, WeightsAreSensitivitiesInWholeOctavesAroundTheirMean) {
  const Options options = {{"sinks", 0}, {"recent", 0}, {"beta", 1}, {"least", 1.0 / 64}};
  const auto weights = Three().Weigh(ExpectedStage(), options).value();
  EXPECT_EQ(weights[1], (Row{.25, 1, 4}));  // V: p^2
  // K: p^2 |v - 4|^2 is 16, 64 and 144 over 49, whose logarithms are 4, 6 and 7.2.
  EXPECT_EQ(weights[0], (Row{.25, 1, 2}));
}

TEST(Expected, LimitsSinksAndRecentTokens) {
  Options options = {{"sinks", 0}, {"recent", 0}, {"beta", 1}, {"least", 0.5}, {"most", 2}};
  EXPECT_EQ(Three().Weigh(ExpectedStage(), options).value()[1], (Row{.5, 1, 2}));
  options["sinks"] = 1;  // out of the mean, and at least 1
  EXPECT_EQ(Three().Weigh(ExpectedStage(), options).value()[1], (Row{1, .5, 2}));
  options = {{"sinks", 0}, {"recent", 3}, {"beta", 1}};
  EXPECT_EQ(Three().Weigh(ExpectedStage(), options).value()[1], (Row{1, 1, 4}));
  options["beta"] = 0;
  EXPECT_EQ(Three().Weigh(ExpectedStage(), options).value()[1], (Row{1, 1, 1}));
}

TEST(Expected, SpreadOfTheQueriesCountsBesideTheirMean) {
  Weighing test = Three();
  // Logits k^2 ln 2 / 2 of keys -2, 0 and 2: p is 4/9, 1/9 and 4/9.
  test.FillKeys([](auto, auto t, auto, auto) { return 2.0F * static_cast<float>(t) - 2.0F; });
  test.SetStatistics(
      1, [](auto, auto, auto) { return 0.0F; },
      [](auto, auto, auto, auto) { return std::log(2.0F); });
  const Options options = {{"sinks", 0}, {"recent", 0}, {"beta", 1}, {"least", 1.0 / 64}};
  EXPECT_EQ(test.Weigh(ExpectedStage(), options).value()[1], (Row{2, .125, 2}));
}

TEST(Expected, RanksByProbabilityTimesLengthOfTheValue) {
  Weighing test = Three();
  test.FillValues([](auto, auto t, auto, auto) { return Row{6, -1, 1}[t]; });  // 6, 2 and 4
  Options options = {{"sinks", 0}, {"recent", 0}, {"beta", 0}, {"keep", 0.6}, {"outside", 0}};
  EXPECT_EQ(test.Weigh(ExpectedStage(), options).value(), Weighing::Weights(2, Row{1, 0, 1}));
  options["recent"] = 2;
  options["keep"] = 0;
  EXPECT_EQ(test.Weigh(ExpectedStage(), options).value()[0], (Row{0, 1, 1}));
}

Weighing Rotated(TokenRange tokens) {
  KvGeometry geometry =
      testing::MakeGeometry(DType::kFloat32, {{2, 8, 6}, {1, 8, 4, 40}, {1, 6, 0}});
  geometry.layers[0].rope_style = RopeStyle::kHalves;
  geometry.layers[0].rope_theta = 1e4F;
  geometry.layers[1].rope_style = RopeStyle::kInterleaved;
  geometry.layers[1].rope_theta = 500.0F;
  Weighing test(geometry, tokens);
  test.FillKeys([](auto l, auto t, auto h, auto d) { return Noise(l, t, h, d); });
  test.FillValues([](auto l, auto t, auto h, auto d) { return Noise(l + 20, t, h, d); });
  test.SetStatistics(
      3, [](auto l, auto h, auto i) { return Noise(l, h, i, 3); },
      [](auto l, auto h, auto i, auto j) {
        return Noise(l, h, std::min(i, j), 100 + std::max(i, j)) / 4 + (i == j ? 2.0F : 0.0F);
      });
  return test;
}

// Sensitivities of one layer by the definition, in double: queries are rotated one by one.
struct Oracle {
  const Weighing& test;
  double first;
  double horizon;

  double Logit(std::uint32_t layer, const float* key, const float* mean, const float* s) const {
    const LayerGeometry& geometry = test.geometry.layers[layer];
    const std::uint32_t dim = geometry.k_dim;
    double sum = 0.0;
    for (int n = 0; n < 32; ++n) {
      // k . R q = (R^T k) . q
      std::vector<double> k(key, key + dim);
      for (std::uint32_t i = 0; geometry.rope_style != RopeStyle::kNone && i < dim / 2; ++i) {
        const double angle =
            (first + horizon * n / 31) * std::pow(double{geometry.rope_theta}, -2.0 * i / dim);
        const bool halves = geometry.rope_style == RopeStyle::kHalves;
        double& x = k[halves ? i : 2 * i];
        double& y = k[halves ? i + dim / 2 : 2 * i + 1];
        const double turned = x * std::cos(angle) + y * std::sin(angle);
        y = y * std::cos(angle) - x * std::sin(angle);
        x = turned;
      }
      for (std::uint32_t i = 0; i < dim; ++i) {
        sum += k[i] * mean[i] / std::sqrt(dim);
        for (std::uint32_t j = 0; j < dim; ++j) sum += k[i] * s[i * dim + j] * k[j] / (2.0 * dim);
      }
    }
    return sum / 32;
  }

  // [K, V][token]; V is empty for a single plane, whose sensitivity is p^2.
  std::vector<std::vector<double>> Sensitivities(std::uint32_t layer) const {
    const ConstLayerView kv = test.kv.view().layers[layer];
    const QueryStatistics& queries = *test.artefact->query_statistics(layer);
    const auto keys = testing::PlaneValues(kv.k);
    const std::size_t dim = kv.k.dim, tokens = kv.k.tokens, v_dim = kv.v.dim;
    const bool single = test.geometry.layers[layer].single_plane();
    const auto values = single ? Row() : testing::PlaneValues(kv.v);
    std::vector<std::vector<double>> found(2, std::vector<double>(tokens, 0.0));
    for (std::size_t h = 0; h < queries.heads; ++h) {
      const std::size_t head = h / (queries.heads / kv.k.heads);
      std::vector<double> p(tokens);
      for (std::size_t t = 0; t < tokens; ++t) {
        p[t] = std::exp(Logit(layer, &keys[(t * kv.k.heads + head) * dim], &queries.mean[h * dim],
                              &queries.covariance[h * dim * dim]));
      }
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      std::vector<double> o(v_dim, 0.0);
      const auto v = [&](std::size_t t, std::size_t c) {
        return double{values[(t * kv.v.heads + head) * v_dim + c]};
      };
      for (std::size_t t = 0; t < tokens; ++t) {
        p[t] /= sum;
        for (std::size_t c = 0; !single && c < v_dim; ++c) o[c] += p[t] * v(t, c);
      }
      for (std::size_t t = 0; t < tokens; ++t) {
        double distance = single ? 1.0 : 0.0;
        for (std::size_t c = 0; !single && c < v_dim; ++c) distance += std::pow(v(t, c) - o[c], 2);
        found[0][t] += p[t] * p[t] * distance;
        found[1][t] += p[t] * p[t];
      }
    }
    return found;
  }
};

Row Octaves(const std::vector<double>& sensitivity, double beta) {
  double mean = 0.0;
  for (const double s : sensitivity) mean += std::log2(s) / static_cast<double>(sensitivity.size());
  Row weights;
  for (const double s : sensitivity) {
    weights.push_back(std::exp2(
        static_cast<float>(std::clamp(std::round(beta * (std::log2(s) - mean)), -6.0, 6.0))));
  }
  return weights;
}

TEST(Expected, SensitivitiesAreThoseOfAPlainOracle) {
  for (const std::uint32_t prompt : {0U, 500U}) {
    Weighing test = Rotated({30, 110});
    test.prompt_tokens = prompt;
    const Options options = {{"sinks", 0},  {"recent", 0},       {"k_beta", 0.75},
                             {"v_beta", 1}, {"least", 1.0 / 64}, {"horizon", 100}};
    const auto weights = test.Weigh(ExpectedStage(), options).value();
    const Oracle oracle{test, prompt == 0 ? 110.0 : 500.0, 100.0};
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      const auto expected = oracle.Sensitivities(layer);
      EXPECT_EQ(weights[2 * layer], Octaves(expected[0], 0.75)) << layer;
      EXPECT_EQ(weights[2 * layer + 1], Octaves(expected[1], 1)) << layer;
    }
    EXPECT_EQ(weights[4], Octaves(oracle.Sensitivities(2)[0], 1));
  }
}

TEST(Expected, EveryTargetAndThreadCountGivesTheSameWeights) {
  Weighing test = Rotated({0, 150});
  const Options options = {{"keep", 0.4}, {"beta", 0.5}};
  const auto expected = test.Weigh(ExpectedStage(), options).value();
  ForEachIsa([&] { EXPECT_EQ(test.Weigh(ExpectedStage(), options).value(), expected); });
  test.threads = 3;
  EXPECT_EQ(test.Weigh(ExpectedStage(), options).value(), expected);
}

TEST(Expected, FramesOfOneTokenAndLayersWithoutTokens) {
  Weighing one = Rotated({7, 8});
  EXPECT_EQ(one.Weigh(ExpectedStage(), {{"keep", 0.1}}).value(), Weighing::Weights(5, Row{1}));
  Weighing ends({{1, 4, 4}, {1, 4, 4, 2}}, {0, 8}, 20);
  ends.SetStatistics(
      1, [](auto, auto, auto) { return 1.0F; }, [](auto, auto, auto, auto) { return 0.5F; });
  const auto weights = ends.Weigh(ExpectedStage(), {{"sinks", 8}}).value();
  EXPECT_EQ(weights[0].size(), 8U);
  EXPECT_TRUE(weights[2].empty());
}

// Their statistics are not rotated, as keys of such layers are not turned back.
TEST(Expected, LayersOfOddWidthAreAsWithoutRope) {
  const auto weigh = [](RopeStyle style) {
    KvGeometry geometry = testing::MakeGeometry(DType::kFloat32, {{1, 5, 4}, {1, 4, 4}});
    geometry.layers[0].rope_style = style;
    geometry.layers[0].rope_theta = style == RopeStyle::kNone ? 0.0F : 1e4F;
    Weighing test(geometry, {0, 40});
    test.FillKeys([](auto l, auto t, auto h, auto d) { return Noise(l, t, h, d); });
    test.SetStatistics(
        1, [](auto l, auto h, auto i) { return Noise(l, h, i, 3); },
        [](auto, auto, auto i, auto j) { return i == j ? 2.0F : 0.0F; });
    return test.Weigh(ExpectedStage(), {{"beta", 1}}).value();
  };
  EXPECT_EQ(weigh(RopeStyle::kHalves), weigh(RopeStyle::kNone));
  EXPECT_EQ(weigh(RopeStyle::kInterleaved), weigh(RopeStyle::kNone));
}

TEST(Expected, NamesTheLayerThatTheArtefactLacks) {
  const Weighing without({{1, 4, 4}}, {0, 8});
  const auto lacking = without.Weigh(ExpectedStage(), {});
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().code, ErrorCode::kMismatch);
  Weighing other({{1, 4, 4}}, {0, 8});
  const Weighing wider({{3, 8, 4}}, {0, 8});
  other.artefact = [&] {
    Weighing copy = wider;
    copy.SetStatistics(
        1, [](auto, auto, auto) { return 0.0F; }, [](auto, auto, auto, auto) { return 0.0F; });
    return copy.artefact;
  }();
  const auto shape = other.Weigh(ExpectedStage(), {});
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().message,
            "the calibration artefact has query statistics of another shape for layer 0");
}

TEST(Expected, SaysWhatItNeedsAndWhetherItDrops) {
  const auto weighs = testing::MakeSelector(ExpectedStage(), {{"outside", 0}}).value();
  EXPECT_TRUE(weighs->needs_artefact());
  EXPECT_FALSE(weighs->may_drop());  // keeps all
  EXPECT_TRUE(
      testing::MakeSelector(ExpectedStage(), {{"outside", 0}, {"keep", 0.5}}).value()->may_drop());
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{
           {"beta", 3}, {"least", 0}, {"least", 2}, {"most", 100}, {"horizon", 0}, {"keep", -1}}) {
    EXPECT_FALSE(testing::MakeSelector(ExpectedStage(), {{name, value}})) << name << " " << value;
  }
}

}  // namespace
}  // namespace kvserve
