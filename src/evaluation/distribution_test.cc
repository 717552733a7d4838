#include "evaluation/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/byte_io.h"

namespace kvserve {
namespace {

constexpr std::int32_t kNone = ReferenceDistributions::kNoTarget;

// Logits whose softmax are these probabilities, shifted by an arbitrary constant.
std::vector<float> Logits(const std::vector<double>& probabilities, float shift) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + shift);
  return logits;
}

std::vector<float> RandomLogits(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 8);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

DistributionSum Score(const std::vector<float>& reference, std::uint32_t vocabulary,
                      const std::vector<std::int32_t>& targets, const std::vector<float>& other) {
  ReferenceDistributions distributions(vocabulary);
  EXPECT_TRUE(distributions.Append(reference, targets));
  DistributionSum sum;
  EXPECT_TRUE(distributions.Compare(0, other, sum));
  return sum;
}

TEST(Distribution, EqualLogitsScoreExactlyZero) {
  const auto logits = RandomLogits(5000, 3);
  const auto sum = Score(logits, 1000, {1, 2, 3, 4, kNone}, logits);
  EXPECT_EQ(sum.kl, 0.0);
  EXPECT_EQ(sum.rows, 5U);
  EXPECT_EQ(sum.same_top, 5.0);
  EXPECT_EQ(sum.targets, 4U);
  EXPECT_EQ(sum.nll, sum.reference_nll);
  EXPECT_GT(sum.nll, 0.0);
}

TEST(Distribution, KnownValues) {
  // KL((1/2, 1/4, 1/4) || (1/4, 1/4, 1/2)) = 1/2 ln 2 - 1/4 ln 2.
  const auto sum = Score(Logits({.5, .25, .25}, 3), 3, {0}, Logits({.25, .25, .5}, -4));
  EXPECT_NEAR(sum.kl, 0.25 * std::log(2.0), 1e-6);
  EXPECT_EQ(sum.same_top, 0.0);
  EXPECT_EQ(sum.top_targets, 0U);
  EXPECT_NEAR(sum.reference_nll, std::log(2.0), 1e-6);
  EXPECT_NEAR(sum.nll, std::log(4.0), 1e-6);
  EXPECT_EQ(Score(Logits({.5, .25, .25}, 3), 3, {2}, Logits({.25, .25, .5}, 0)).top_targets, 1U);
}

TEST(Distribution, TheTailThatIsLeftOutChangesLittle) {
  constexpr std::uint32_t kVocabulary = 5000;
  const auto reference = RandomLogits(kVocabulary, 1);
  auto other = reference;
  const auto noise = RandomLogits(kVocabulary, 2);
  for (std::size_t i = 0; i < other.size(); ++i) other[i] += noise[i] / 8 + 100;
  double sums[2] = {0, 0};
  for (std::size_t i = 0; i < kVocabulary; ++i) {
    sums[0] += std::exp(double{reference[i]});
    sums[1] += std::exp(double{other[i]} - 100);
  }
  double kl = 0;
  for (std::size_t i = 0; i < kVocabulary; ++i) {
    const double log_p = reference[i] - std::log(sums[0]);
    kl += std::exp(log_p) * (log_p - (other[i] - 100 - std::log(sums[1])));
  }
  EXPECT_NEAR(Score(reference, kVocabulary, {kNone}, other).kl, kl, 1e-5);
  ReferenceDistributions kept(kVocabulary);
  ASSERT_TRUE(kept.Append(reference, std::vector<std::int32_t>{kNone}));
  EXPECT_LT(kept.bytes(), kVocabulary * 4);
}

TEST(Distribution, IsNeverNegativeAndSurvivesLargeLogits) {
  const auto sum = Score({3e4F, -3e4F, 0}, 3, {kNone}, {3e4F, 0, -3e4F});
  EXPECT_GE(sum.kl, 0.0);
  EXPECT_LT(sum.kl, 1e-9);
}

TEST(Distribution, RowsMayComeInPieces) {
  const auto reference = RandomLogits(40, 4);
  const auto other = RandomLogits(40, 5);
  const std::vector<std::int32_t> targets = {0, 1, 2, kNone};
  ReferenceDistributions pieces(10);
  DistributionSum sum;
  const auto row = [](const std::vector<float>& logits, std::size_t at) -> std::span<const float> {
    return std::span(logits).subspan(at * 10, 10);
  };
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(pieces.Append(row(reference, i), std::span(targets).subspan(i, 1)));
  }
  for (std::size_t i = 0; i < 4; ++i) ASSERT_TRUE(pieces.Compare(i, row(other, i), sum));
  const auto whole = Score(reference, 10, targets, other);
  EXPECT_DOUBLE_EQ(sum.kl, whole.kl);
  EXPECT_EQ(sum.rows, whole.rows);
  EXPECT_EQ(pieces.Own().reference_nll, whole.reference_nll);
}

TEST(Distribution, SurvivesItsBytes) {
  const auto reference = RandomLogits(300, 6);
  const auto other = RandomLogits(300, 7);
  ReferenceDistributions written(100);
  ASSERT_TRUE(written.Append(reference, std::vector<std::int32_t>{5, kNone, 99}));
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  written.Write(out);
  ByteReader in(bytes);
  const auto read = ReferenceDistributions::Read(in, 100);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(in.remaining(), 0U);
  DistributionSum before;
  DistributionSum after;
  ASSERT_TRUE(written.Compare(0, other, before));
  ASSERT_TRUE(read->Compare(0, other, after));
  EXPECT_EQ(before.kl, after.kl);
  EXPECT_EQ(before.nll, after.nll);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto first = std::span(bytes).first(size);
    ByteReader cut(first);
    EXPECT_FALSE(ReferenceDistributions::Read(cut, 100)) << size;
  }
  ByteReader smaller(bytes);
  EXPECT_FALSE(ReferenceDistributions::Read(smaller, 50));
}

TEST(Distribution, RefusesWhatDoesNotFit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ReferenceDistributions reference(2);
  const std::vector<std::int32_t> one = {0};
  const auto append = [&](std::vector<float> logits, std::vector<std::int32_t> targets) {
    return reference.Append(logits, targets).error().code;
  };
  EXPECT_EQ(append({1, 2, 3}, one), ErrorCode::kInvalidArgument);
  EXPECT_EQ(append({1, 2}, {2}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(append({1, nan}, one), ErrorCode::kBadInput);
  EXPECT_EQ(reference.rows(), 0U);
  ASSERT_TRUE(reference.Append(std::vector<float>{1, 2}, one));
  DistributionSum sum;
  const auto compare = [&](std::size_t row, std::vector<float> logits) {
    return reference.Compare(row, logits, sum).error().code;
  };
  EXPECT_EQ(compare(0, {1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(compare(1, {1, 2}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(compare(0, {1, nan}), ErrorCode::kBadInput);
}

}  // namespace
}  // namespace kvserve
