// Transforms trained on made-up planes whose structure is known.
#include "calibration/transform/transform_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "calibration/transform/context_fit.h"
#include "calibration/transform/whitening_fit.h"
#include "library/calibration_file.h"
#include "library/whitening_matrices.h"
#include "pipeline/plane_floats.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kDim = 8;
constexpr std::uint32_t kTokens = 400;

KvGeometry Geometry() {
  KvGeometry geometry;
  geometry.dtype = DType::kFloat32;
  geometry.layers.assign(2, {.kv_heads = 2, .k_dim = kDim, .v_dim = kDim});
  return geometry;
}

// Planes of layer 1 are those of layer 0 turned by one column, and a little noise; columns of layer
// 0 have standard deviations that fall.
KvBuffer Text(const KvGeometry& geometry, unsigned seed) {
  KvBuffer kv;
  EXPECT_TRUE(kv.Resize(geometry, {0, kTokens}, kTokens));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const std::uint32_t columns = 2 * kDim;
  std::vector<float> first(std::size_t{kTokens} * columns);
  const KvView view = kv.view();
  for (const auto& layer : view.layers) {
    for (const auto& plane : {layer.k, layer.v}) {
      std::vector<float> values(first.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t column = i % columns;
        const float scale = 4.0F / static_cast<float>(1 + column);
        values[i] = layer.layer == 0
                        ? 3.0F + scale * normal(random)
                        : first[i - column + (column + 1) % columns] + 0.05F * normal(random);
      }
      EXPECT_TRUE(StoreFloats(values, plane));
      if (layer.layer == 0) first = values;  // V's, for both planes of layer 1
    }
  }
  return kv;
}

Sensitivity Even(const KvGeometry& geometry, float value) {
  Sensitivity sensitivity{.context_tokens = 1024, .scored_tokens = 64};
  for (std::size_t p = 0; p < 2 * geometry.layers.size(); ++p) {
    auto& plane = sensitivity.planes.emplace_back(4 * kDim * kDim);
    for (std::size_t i = 0; i < 2 * kDim; ++i) plane[i * (2 * kDim + 1)] = value;
  }
  return sensitivity;
}

class TransformTraining : public ::testing::Test {
 protected:
  TransformTraining() : geometry_(Geometry()), texts_(geometry_) {
    for (const unsigned seed : {1U, 2U, 3U}) {
      const KvBuffer text = Text(geometry_, seed);
      EXPECT_TRUE(texts_.Add(text.view()));
    }
    classes_.assign(4, std::vector<std::uint8_t>(texts_.rows(), 6));
    // So that a step of 1 is 1/8 in the values.
    sensitivity_ = Even(geometry_, 1.0F);
    const double unit = SensitivityUnit(sensitivity_, geometry_);
    sensitivity_ = Even(geometry_, static_cast<float>(unit * unit * 64));
  }

  Result<CalibrationArtefact::Contents> Train(const TransformOptions& options,
                                              unsigned threads = 1) {
    CalibrationArtefact::Contents contents;
    contents.geometry = geometry_;
    Workers workers(threads);
    if (auto status = TrainTransform(texts_, sensitivity_, classes_, options, workers, contents);
        !status) {
      return tl::unexpected(status.error());
    }
    return contents;
  }

  KvGeometry geometry_;
  CalibrationTexts texts_;
  Sensitivity sensitivity_;
  std::vector<std::vector<std::uint8_t>> classes_;
};

TEST_F(TransformTraining, WhatItLearnsIsAnArtefact) {
  const auto contents = Train({.steps = {0.5, 1, 2}, .frame_tokens = 64});
  ASSERT_TRUE(contents) << contents.error().message;
  const auto bytes = FormatCalibration(*contents);
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_TRUE(ParseCalibration(*bytes));
  EXPECT_EQ(contents->predictors[0].inputs, 0U);
  EXPECT_EQ(contents->predictors[1].inputs, 2 * kDim);
  EXPECT_EQ(contents->predictors[3].inputs, 6 * kDim);
}

TEST_F(TransformTraining, ComponentsAreUncorrelatedAndInUnits) {
  const auto contents = Train({.steps = {1}});
  ASSERT_TRUE(contents) << contents.error().message;
  std::vector<float> values;
  ASSERT_TRUE(texts_.Load(0, values));
  const Whitening& whitening = contents->whitening[0];
  const auto forward = InvertedWhitening(whitening).value();
  constexpr std::size_t kColumns = 2 * kDim;
  std::vector<double> products(kColumns * kColumns);
  for (std::size_t row = 0; row < texts_.rows(); ++row) {
    std::array<double, kColumns> z{};
    for (std::size_t i = 0; i < kColumns; ++i) {
      for (std::size_t c = 0; c < kColumns; ++c) {
        z[i] += (values[row * kColumns + c] - whitening.mean[c]) * forward[c * kColumns + i];
      }
    }
    for (std::size_t i = 0; i < kColumns; ++i) {
      for (std::size_t j = 0; j < kColumns; ++j) products[i * kColumns + j] += z[i] * z[j];
    }
  }
  for (std::size_t i = 0; i < kColumns; ++i) {
    // 8 steps to 1: standard deviations 4, 2, 4/3 ...; 5 % of the metric is its mean, as before.
    const double deviation = std::sqrt(products[i * (kColumns + 1)] / texts_.rows());
    EXPECT_NEAR(deviation, 32.0 / (1 + i), 3.2 / (1 + i)) << i;
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_LT(std::fabs(products[i * kColumns + j]),
                0.1 * std::sqrt(products[i * (kColumns + 1)] * products[j * (kColumns + 1)]));
    }
  }
}

// Layer 1 follows from V of layer 0, so what is left is about the noise and the steps.
TEST_F(TransformTraining, PredictionLeavesTheNoise) {
  const auto contents = Train({.steps = {1}, .frame_tokens = 100});
  ASSERT_TRUE(contents) << contents.error().message;
  const auto& planes = contents->frame_expectation.planes;
  EXPECT_EQ(planes[0].gain, 0);
  EXPECT_LT(std::fabs(planes[1].gain), 0.5);  // V of layer 0 is nobody's copy
  EXPECT_GT(planes[2].gain, 3);
  EXPECT_GT(planes[3].gain, 3);
  EXPECT_GT(planes[0].energy, 5);  // log2 of about 8 * (16 + 4 + 16/9 ...)
  EXPECT_GT(planes[0].energy_spread, 0);
  const auto mean_column = [&](std::size_t p) {
    double sum = 0;
    for (const std::int8_t index : contents->code_tables->points[0].planes[p].column) sum += index;
    return sum / (2 * kDim);
  };
  EXPECT_LT(mean_column(2), mean_column(0) - 4);
}

TEST_F(TransformTraining, CoarserStepsCostFewerBits) {
  const auto contents = Train({.steps = {0.5, 1, 2}});
  ASSERT_TRUE(contents) << contents.error().message;
  const auto& points = contents->code_tables->points;
  ASSERT_EQ(points.size(), 3U);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_NEAR(points[i - 1].bits_per_value - points[i].bits_per_value, 0.9, 0.4);
    // The same columns, an octave apart.
    EXPECT_NEAR(points[i - 1].planes[0].column[0] - points[i].planes[0].column[0], 4, 1);
  }
}

// The table of a column of finer classes is that of larger symbols.
TEST_F(TransformTraining, ClassesShiftTablesByTheirSteps) {
  for (std::size_t row = 0; row < texts_.rows(); ++row) {
    for (auto& plane : classes_) plane[row] = static_cast<std::uint8_t>(row % 3 == 0 ? 10 : 6);
  }
  const auto contents = Train({.steps = {2}});
  ASSERT_TRUE(contents) << contents.error().message;
  const auto& klass = contents->code_tables->points[0].planes[0].klass;
  EXPECT_NEAR(klass[10] - klass[6], 8, 1);  // four half octaves
  const auto& classes = contents->code_tables->classes[0];
  EXPECT_GT(classes[10][10], 3900);
  EXPECT_GT(classes[6][6], 3900);
  EXPECT_NEAR(classes[kNoClass][10], 4096.0 / 3, 60);
}

TEST_F(TransformTraining, ThreadsChangeNothing) {
  const TransformOptions options{.steps = {0.5, 2}};
  const auto alone = FormatCalibration(*Train(options));
  const auto together = FormatCalibration(*Train(options, 3));
  ASSERT_TRUE(alone && together);
  EXPECT_EQ(*alone, *together);
}

TEST_F(TransformTraining, GroupsAreHeadsBeyondJointColumns) {
  const auto contents = Train({.steps = {1}, .joint_columns = 2 * kDim - 1});
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(contents->whitening[0].columns, kDim);
  EXPECT_EQ(contents->whitening[0].inverse.size(), 2 * kDim * kDim);
}

TEST_F(TransformTraining, RefusesWhatItCannotUse) {
  for (const auto& steps : {std::vector<double>{}, {2, 1}, {0, 1}, {1, INFINITY}}) {
    EXPECT_EQ(Train({.steps = steps}).error().code, ErrorCode::kInvalidArgument);
  }
  sensitivity_.planes[2].pop_back();
  const auto other = Train({.steps = {1}});
  EXPECT_EQ(other.error().code, ErrorCode::kMismatch);
  EXPECT_NE(other.error().message.find("layer 1 K"), std::string::npos) << other.error().message;
  sensitivity_.planes.pop_back();
  EXPECT_EQ(Train({.steps = {1}}).error().code, ErrorCode::kMismatch);
}

// Few bits: the matrices are others, and prediction is nearly as good.
TEST_F(TransformTraining, MatricesOfFewBitsCostLittle) {
  const auto whole = Train({.steps = {1}, .frame_tokens = 100});
  const auto few =
      Train({.steps = {1}, .whitening_bits = 6, .predictor_bits = 4, .frame_tokens = 100});
  ASSERT_TRUE(whole && few);
  const auto most = [](std::span<const std::int8_t> values) {
    return std::abs(
        *std::ranges::max_element(values, {}, [](std::int8_t value) { return std::abs(value); }));
  };
  for (std::size_t p = 0; p < 4; ++p) {
    EXPECT_EQ(few->whitening[p].bits, 6) << p;
    EXPECT_LE(most(few->whitening[p].inverse), 31) << p;
    EXPECT_TRUE(InvertedWhitening(few->whitening[p])) << p;
    if (p == 0) continue;
    EXPECT_EQ(few->predictors[p].bits, 4) << p;
    EXPECT_LE(most(few->predictors[p].weights), 7) << p;
    const auto gain = [p](const auto& contents) {
      return contents->frame_expectation.planes[p].gain;
    };
    EXPECT_GT(gain(few), gain(whole) - 0.5) << p;
  }
  EXPECT_LT(FormatCalibration(*few)->size(), FormatCalibration(*whole)->size());
  EXPECT_NEAR(few->code_tables->points[0].bits_per_value,
              whole->code_tables->points[0].bits_per_value, 0.1);
}

TEST_F(TransformTraining, RefusesBitsThatAreNone) {
  for (const unsigned bits : {1U, 9U}) {
    EXPECT_EQ(Train({.steps = {1}, .whitening_bits = bits}).error().code,
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(Train({.steps = {1}, .predictor_bits = bits}).error().code,
              ErrorCode::kInvalidArgument);
  }
}

// Layer 1 is noise, layer 2 as layer 0: only who looks back two layers can predict it.
TEST_F(TransformTraining, LooksBackAsManyLayersAsAskedFor) {
  geometry_.layers.push_back(geometry_.layers.back());
  texts_ = CalibrationTexts(geometry_);
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (const unsigned seed : {1U, 2U, 3U}) {
    KvBuffer text = Text(geometry_, seed);
    for (const auto& plane : {text.view().layers[1].k, text.view().layers[1].v}) {
      std::vector<float> noise(std::size_t{kTokens} * 2 * kDim);
      for (float& value : noise) value = normal(random);
      ASSERT_TRUE(StoreFloats(noise, plane));
    }
    ASSERT_TRUE(texts_.Add(std::as_const(text).view()));
  }
  classes_.assign(6, std::vector<std::uint8_t>(texts_.rows(), 6));
  sensitivity_ = Even(geometry_, sensitivity_.planes[0][0]);
  const auto one = Train({.steps = {1}, .predictor_layers = 1, .frame_tokens = 100});
  const auto two = Train({.steps = {1}, .predictor_layers = 2, .frame_tokens = 100});
  const auto eight = Train({.steps = {1}, .predictor_layers = 8, .frame_tokens = 100});
  ASSERT_TRUE(one && two && eight);
  const auto gain = [](const auto& contents) { return contents->frame_expectation.planes[4].gain; };
  EXPECT_LT(gain(one), 0.5);
  EXPECT_GT(gain(two), 2);
  EXPECT_EQ(two->predictors[4].inputs, 8 * kDim);
  EXPECT_EQ(two->predictors[4].weights, eight->predictors[4].weights);
  EXPECT_EQ(Train({.steps = {1}, .query_bits = 16}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Train({.steps = {1}, .predictor_layers = 9}).error().code, ErrorCode::kInvalidArgument);
}

// Llama-3.1-8B has more of them than fit, Qwen2.5-7B has not.
TEST(MatrixSizes, AreFewInLargeModels) {
  KvGeometry llama;
  llama.layers.assign(32, {.kv_heads = 8, .k_dim = 128, .v_dim = 128});
  KvGeometry qwen;
  qwen.layers.assign(28, {.kv_heads = 4, .k_dim = 128, .v_dim = 128});
  EXPECT_EQ(MatrixSizesOf(llama, {}).whitening_bits, 6U);
  EXPECT_EQ(MatrixSizesOf(llama, {}).predictor_bits, 4U);
  EXPECT_EQ(MatrixSizesOf(llama, {}).predictor_layers, 1U);
  EXPECT_EQ(MatrixSizesOf(llama, {}).query_bits, 8U);
  EXPECT_EQ(MatrixSizesOf(llama, {.query_bits = 32}).query_bits, 32U);
  EXPECT_EQ(MatrixSizesOf(qwen, {}).query_bits, 32U);
  EXPECT_EQ(MatrixSizesOf(qwen, {}).predictor_layers, 2U);
  EXPECT_EQ(MatrixSizesOf(llama, {.predictor_layers = 3}).predictor_layers, 3U);
  EXPECT_EQ(MatrixSizesOf(llama, {.predictor_bits = 8}).predictor_bits, 8U);
  EXPECT_EQ(MatrixSizesOf(qwen, {}).whitening_bits, 8U);
  EXPECT_EQ(MatrixSizesOf(qwen, {}).predictor_bits, 8U);
  EXPECT_EQ(MatrixSizesOf(qwen, {.whitening_bits = 5}).whitening_bits, 5U);
}

// A plane on which nothing depends, and one that never changes.
TEST_F(TransformTraining, DeadPlanesAreWhitenedToo) {
  sensitivity_.planes[0].assign(sensitivity_.planes[0].size(), 0.0F);
  const auto contents = Train({.steps = {1}});
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_TRUE(InvertedWhitening(contents->whitening[0]));
  EXPECT_TRUE(FormatCalibration(*contents));
  Workers workers;
  const Whitening flat = FitWhitening(std::vector<float>{1, 0, 0, 1}, {5, 5},
                                      std::vector<float>{0, 0, 0, 0}, {2}, 1, workers)
                             .value();
  EXPECT_TRUE(InvertedWhitening(flat));
}

TEST(CalibrationTexts, RefusesPartsOfTexts) {
  const KvGeometry geometry = Geometry();
  KvBuffer kv;
  ASSERT_TRUE(kv.Resize(geometry, {8, 16}, 16));
  CalibrationTexts texts(geometry);
  EXPECT_EQ(texts.Add(std::as_const(kv).view()).error().code, ErrorCode::kUnsupported);
}

TEST(FitTables, AreSymmetricAndShaped) {
  TableCounts counts;
  std::mt19937 random(5);
  std::exponential_distribution<double> size(1 / 3.0);
  for (int i = 0; i < 20000; ++i) {
    const auto q = static_cast<int>(size(random)) * (i % 2 == 0 ? 1 : -1);
    ++counts.table(30)[127 + q];
  }
  const auto tables = FitTables(counts);
  for (std::size_t i = 0; i < kCodeTables; ++i) {
    unsigned sum = 0;
    for (const unsigned frequency : tables[i]) sum += frequency;
    EXPECT_EQ(sum, 4096U) << i;
    EXPECT_GE(tables[i][kCodeEscape], 1) << i;
    for (std::size_t q = 1; q <= 127; ++q) EXPECT_EQ(tables[i][127 - q], tables[i][127 + q]) << i;
  }
  // The entropy of these symbols is 3.75 bits; a table of another scale takes more.
  const double bits = CodeBits(counts, tables) / 20000;
  EXPECT_NEAR(bits, 3.75, 0.04);
  TableCounts moved;
  for (std::size_t s = 0; s < kCodeSymbols; ++s) moved.table(20)[s] = counts.table(30)[s];
  EXPECT_GT(CodeBits(moved, tables) / 20000, bits + 0.2);
}

TEST(FitTables, MeanSizesGrow) {
  const auto sizes = TableMeanSizes();
  EXPECT_EQ(sizes[0], 0);
  EXPECT_NEAR(sizes[kUnitCodeTable], 256, 20);
  for (std::size_t i = 1; i < kCodeTables; ++i) EXPECT_GE(sizes[i], sizes[i - 1]);
}

}  // namespace
}  // namespace kvserve
