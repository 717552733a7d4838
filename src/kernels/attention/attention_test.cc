#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/attention/softmax_steps.h"
#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

std::vector<float> Gaussian(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.5F, 2.0F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> Packed(std::span<const float> rows, std::size_t heads, std::size_t head,
                          std::size_t dim) {
  std::vector<float> packed(PackedTokens(rows.size() / (heads * dim)) * dim, NAN);
  PackKeys(rows, heads, head, dim, packed);
  return packed;
}

TEST(Attention, PackedKeysAreThoseOfOneHead) {
  const auto rows = Gaussian(std::size_t{33} * 3 * 5, 1);  // [token, head, dim]
  const auto packed = Packed(rows, 3, 1, 5);
  ASSERT_EQ(packed.size(), 64U * 5);
  for (std::size_t t = 0; t < 64; ++t) {
    for (std::size_t d = 0; d < 5; ++d) {
      const float expected = t < 33 ? rows[(t * 3 + 1) * 5 + d] : 0.0F;
      EXPECT_EQ(packed[(t / 32 * 5 + d) * 32 + t % 32], expected) << t << " " << d;
    }
  }
}

TEST(Attention, EveryTargetGivesTheOraclesProducts) {
  for (const std::size_t dim : {1U, 3U, 64U, 80U}) {
    for (const std::size_t rows : {1U, 3U, 4U, 9U}) {
      const auto keys = Packed(Gaussian(70 * dim, 2), 1, 0, dim);
      const auto queries = Gaussian(rows * dim, 3);
      std::vector<float> expected(rows * 96);
      KeyProductsRef(queries, keys, dim, expected);
      ForEachIsa([&] {
        std::vector<float> products(rows * 96);
        KeyProducts(queries, keys, dim, products);
        EXPECT_EQ(products, expected) << dim << " x " << rows;
      });
    }
  }
}

TEST(Attention, EveryTargetGivesTheOraclesSoftmax) {
  for (const std::size_t count : {1U, 2U, 15U, 16U, 17U, 100U, 1000U}) {
    auto logits = Gaussian(count, 4);
    for (std::size_t i = 0; i < count; i += 7) logits[i] *= 100.0F;  // down to the least value
    auto expected = Gaussian(count, 5);
    const auto before = expected;
    auto values = logits;
    const SoftmaxSum divisor = AddSoftmaxRef(values, 0.125F, expected);
    ForEachIsa([&] {
      auto mass = before;
      values = logits;
      const SoftmaxSum found = AddSoftmax(values, 0.125F, mass);
      EXPECT_EQ(mass, expected) << count;
      EXPECT_EQ(found.largest, divisor.largest) << count;
      EXPECT_EQ(found.sum, divisor.sum) << count;
    });
  }
}

TEST(Attention, SoftmaxIsThatOfTheTextbook) {
  const auto logits = Gaussian(1000, 6);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(0.5 * logit);
  auto values = logits;
  std::vector<float> mass(1000, 0.0F);
  const SoftmaxSum divisor = AddSoftmax(values, 0.5F, mass);
  EXPECT_NEAR(0.5 * divisor.largest + std::log(divisor.sum), std::log(sum), 1e-6);
  for (std::size_t i = 0; i < 1000; ++i) {
    const double expected = std::exp(0.5 * logits[i]) / sum;
    EXPECT_NEAR(mass[i] / expected, 1.0, 2e-6);
  }
  std::vector<float> one = {3.0F};
  std::vector<float> whole = {0.25F};
  AddSoftmax(one, 1.0F, whole);
  EXPECT_EQ(whole[0], 1.25F);
  EXPECT_EQ(AddSoftmax({}, 1.0F, {}).sum, 0.0F);
}

TEST(Attention, ExponentialsKeepTheirBound) {
  EXPECT_EQ(SoftmaxExp(0.0F), 1.0F);
  for (float x = -86.9F; x < 0.0F; x += 0.0137F) {
    ASSERT_NEAR(SoftmaxExp(x) / std::exp(double{x}), 1.0, 2e-7) << x;
  }
  EXPECT_EQ(SoftmaxExp(-1e30F), SoftmaxExp(-87.0F));
}

TEST(Attention, EveryTargetGivesTheOraclesSums) {
  for (const std::size_t dim : {1U, 3U, 4U, 6U, 64U, 81U}) {
    const auto packed = Packed(Gaussian(70 * dim, 9), 1, 0, dim);
    const auto matrix = Gaussian(dim * dim, 10);
    const auto weights = Gaussian(96, 11);
    std::vector<float> forms(96);
    std::vector<float> squares(96);
    std::vector<float> sums(dim);
    QuadraticFormsRef(matrix, packed, dim, forms);
    SumSquaresRef(packed, dim, squares);
    SumWeightedRef(weights, packed, sums);
    ForEachIsa([&] {
      std::vector<float> found(96);
      QuadraticForms(matrix, packed, dim, found);
      EXPECT_EQ(found, forms) << dim;
      SumSquares(packed, dim, found);
      EXPECT_EQ(found, squares) << dim;
      std::vector<float> found_sums(dim);
      SumWeighted(weights, packed, found_sums);
      EXPECT_EQ(found_sums, sums) << dim;
    });
  }
}

TEST(Attention, SumsAreThoseOfTheTextbook) {
  const std::size_t dim = 5;
  const auto rows = Gaussian(40 * dim, 12);
  const auto packed = Packed(rows, 1, 0, dim);
  const auto weights = Gaussian(64, 13);
  std::vector<float> squares(64);
  std::vector<float> sums(dim);
  SumSquares(packed, dim, squares);
  SumWeighted(weights, packed, sums);
  for (std::size_t t = 0; t < 40; ++t) {
    double expected = 0.0;
    for (std::size_t d = 0; d < dim; ++d) {
      expected += double{rows[t * dim + d]} * rows[t * dim + d];
    }
    EXPECT_NEAR(squares[t], expected, 1e-5);
  }
  for (std::size_t d = 0; d < dim; ++d) {
    double expected = 0.0;
    for (std::size_t t = 0; t < 40; ++t) expected += double{weights[t]} * rows[t * dim + d];
    EXPECT_NEAR(sums[d], expected, 1e-5);
  }
}

TEST(Attention, QuadraticFormsAreThoseOfTheTextbook) {
  const std::size_t dim = 6;
  const auto rows = Gaussian(40 * dim, 7);
  const auto matrix = Gaussian(dim * dim, 8);
  const auto packed = Packed(rows, 1, 0, dim);
  std::vector<float> first(64);
  QuadraticForms(matrix, packed, dim, first);
  for (std::size_t t = 0; t < 40; ++t) {
    double expected = 0.0;
    for (std::size_t i = 0; i < dim * dim; ++i) {
      expected += double{matrix[i]} * rows[t * dim + i / dim] * rows[t * dim + i % dim];
    }
    EXPECT_NEAR(first[t], expected, 1e-3);
  }
  EXPECT_EQ(first[50], 0.0F);
}

}  // namespace
}  // namespace kvserve
