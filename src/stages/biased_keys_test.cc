// Keys with a large constant bias, as the first and last layers of some models have: four bits must
// not cost them their attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvserve/codec.h"
#include "pipeline/plane_floats.h"
#include "pipeline/testing/chunk.h"
#include "stages/presets.h"

namespace kvserve {
namespace {

// Keys N(0, 1) with a constant bias of norm about 600 in three channels; one plane, 4 heads of 128.
constexpr std::uint32_t kKeyTokens = 512;
constexpr std::uint32_t kKeyHeads = 4;
constexpr std::uint32_t kKeyDim = 128;

KvBuffer BiasedKeys() {
  KvBuffer chunk;
  EXPECT_TRUE(chunk.Resize(testing::MakeGeometry(DType::kFloat32, {{kKeyHeads, kKeyDim, 0}}),
                           {0, kKeyTokens}, kKeyTokens));
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(std::size_t{kKeyTokens} * kKeyHeads * kKeyDim);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t channel = i % kKeyDim;
    const bool biased = channel == 17 || channel == 60 || channel == 101;
    values[i] = normal(random) + (biased ? 346.0F : 0.0F);
  }
  EXPECT_TRUE(StoreFloats(values, chunk.view().layers[0].k));
  return chunk;
}

// Correlation of attention logits, over tokens, of N(0, 1) queries with the keys and with their
// decoded form; the least over heads and queries.
double LogitCorrelation(const std::vector<float>& keys, const std::vector<float>& decoded) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  double least = 1.0;
  for (std::uint32_t head = 0; head < kKeyHeads; ++head) {
    for (int query = 0; query < 8; ++query) {
      std::vector<float> q(kKeyDim);
      for (float& value : q) value = normal(random);
      double sums[5] = {};
      for (std::uint32_t token = 0; token < kKeyTokens; ++token) {
        double a = 0.0;
        double b = 0.0;
        for (std::uint32_t d = 0; d < kKeyDim; ++d) {
          const std::size_t i = (std::size_t{token} * kKeyHeads + head) * kKeyDim + d;
          a += double{q[d]} * keys[i];
          b += double{q[d]} * decoded[i];
        }
        const double terms[] = {a, b, a * a, b * b, a * b};
        for (int k = 0; k < 5; ++k) sums[k] += terms[k] / kKeyTokens;
      }
      const double covariance = sums[4] - sums[0] * sums[1];
      const double deviations =
          std::sqrt((sums[2] - sums[0] * sums[0]) * (sums[3] - sums[1] * sums[1]));
      least = std::min(least, covariance / deviations);
    }
  }
  return least;
}

KvBuffer RoundTrip(const KvBuffer& chunk, const std::string& text) {
  std::vector<std::byte> frame;
  const Status encoded = EncodeFrame(chunk.view(), ParseProfile(text).value(), {}, frame);
  EXPECT_TRUE(encoded.has_value()) << text << ": " << encoded.error().message;
  KvBuffer decoded;
  EXPECT_TRUE(DecodeFrame(frame, {}, decoded)) << text;
  return decoded;
}

double CorrelationBy(const std::string& text) {
  const KvBuffer chunk = BiasedKeys();
  const KvBuffer decoded = RoundTrip(chunk, text);
  return LogitCorrelation(testing::PlaneValues(chunk.view().layers[0].k),
                          testing::PlaneValues(decoded.view().layers[0].k));
}

TEST(BiasedKeysAtFourBits, ChannelsOfTheirOwnKeepAttention) {
  EXPECT_GE(CorrelationBy("uniform:levels=16,axis=channel|rans"), 0.99);
  EXPECT_GE(CorrelationBy("uniform:levels=16,axis=channel,reconstruct=mean|rans"), 0.99);
}

// What per-channel ranges are for: a token that shares one with its biased channels is known to
// lose attention. So do floats of three bits, whose error grows with the bias.
TEST(BiasedKeysAtFourBits, SharedRangesAndFloatsAreKnownToLoseAttention) {
  EXPECT_LT(CorrelationBy("uniform:levels=16,axis=token|rans"), 0.9);
  EXPECT_LT(CorrelationBy("uniform:levels=16,axis=tensor|rans"), 0.9);
  EXPECT_LT(CorrelationBy("fp8|rans"), 0.99);
}

// The bias is taken out first: then even ranges that channels share keep attention.
TEST(BiasedKeysAtFourBits, AffineKeepsAttentionWhereRangesAreShared) {
  for (const std::string quantizer :
       {"uniform:levels=16,axis=token|rans", "hadamard|uniform:levels=16|rans",
        "hadamard|uniform:levels=16,axis=token|rans"}) {
    EXPECT_GE(CorrelationBy("affine|" + quantizer), 0.99) << quantizer;
    EXPECT_GE(CorrelationBy("affine:scale=1|" + quantizer), 0.99) << quantizer;
  }
}

// ---- a model of four layers, whose first and last have the bias; presets as people use them ----

constexpr std::uint32_t kLayers = 4;

KvBuffer BiasedModel() {
  KvBuffer chunk;
  const std::vector<testing::LayerShape> shapes(kLayers, {kKeyHeads, kKeyDim, kKeyDim});
  EXPECT_TRUE(
      chunk.Resize(testing::MakeGeometry(DType::kBFloat16, shapes), {0, kKeyTokens}, kKeyTokens));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const bool biased = layer == 0 || layer + 1 == kLayers;
    std::vector<float> keys(std::size_t{kKeyTokens} * kKeyHeads * kKeyDim);
    std::vector<float> values(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::size_t channel = i % kKeyDim;
      const bool large = biased && (channel == 17 || channel == 60 || channel == 101);
      keys[i] = normal(random) + (large ? 346.0F : 0.0F);
      values[i] = normal(random);
    }
    EXPECT_TRUE(StoreFloats(keys, chunk.view().layers[layer].k));
    EXPECT_TRUE(StoreFloats(values, chunk.view().layers[layer].v));
  }
  return chunk;
}

std::string ChainOf(std::string_view preset) {
  return std::string(FindPreset(preset)->profile);
}

std::vector<double> Attention(const std::vector<float>& keys, std::uint32_t head,
                              const std::vector<float>& query) {
  std::vector<double> weights(kKeyTokens);
  for (std::uint32_t token = 0; token < kKeyTokens; ++token) {
    double logit = 0.0;
    for (std::uint32_t d = 0; d < kKeyDim; ++d) {
      logit += double{query[d]} * keys[(std::size_t{token} * kKeyHeads + head) * kKeyDim + d];
    }
    weights[token] = logit / std::sqrt(double{kKeyDim});
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0.0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (double& weight : weights) weight /= sum;
  return weights;
}

// The share of attention that goes elsewhere, over heads and queries; of the worst layer.
double AttentionMoved(const std::string& text) {
  const KvBuffer chunk = BiasedModel();
  const KvBuffer decoded = RoundTrip(chunk, text);
  double worst = 0.0;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const auto keys = testing::PlaneValues(chunk.view().layers[layer].k);
    const auto coded = testing::PlaneValues(decoded.view().layers[layer].k);
    std::mt19937 random(8);
    std::normal_distribution<float> normal;
    double moved = 0.0;
    for (std::uint32_t head = 0; head < kKeyHeads; ++head) {
      std::vector<float> query(kKeyDim);
      for (float& value : query) value = normal(random);
      const auto before = Attention(keys, head, query);
      const auto after = Attention(coded, head, query);
      for (std::uint32_t t = 0; t < kKeyTokens; ++t) {
        moved += 0.5 * std::fabs(before[t] - after[t]) / kKeyHeads;
      }
    }
    worst = std::max(worst, moved);
  }
  return worst;
}

TEST(BiasedModelAtFourBits, NaiveKeysLoseAttention) {
  EXPECT_GT(AttentionMoved("uniform:levels=15,axis=token,range=symmetric|bitpack"), 0.3);
  EXPECT_GT(AttentionMoved("uniform:levels=15,axis=group,group=128,range=symmetric|bitpack"), 0.25);
}

// Ranges per channel hold the bias, rotated or not.
TEST(BiasedModelAtFourBits, PresetsWithRangesPerChannelKeepIt) {
  for (const char* preset : {"kivi4", "published"})
    EXPECT_LT(AttentionMoved(preset), 0.1) << preset;
}

// What shares a scale among channels of a token does not, and does once the means are out.
TEST(BiasedModelAtFourBits, PresetsWithRangesPerTokenNeedAffine) {
  for (const char* preset : {"quarot4", "turboquant4", "nvfp4"}) {
    const std::string chain = "affine|" + ChainOf(preset);
    EXPECT_GT(AttentionMoved(preset), 0.25) << preset;
    EXPECT_LT(AttentionMoved(chain), 0.1) << chain;
  }
}

}  // namespace
}  // namespace kvserve
