// Keys with a large constant bias, as the first and last layers of some models have: four bits must
// not cost them their attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvserve/codec.h"
#include "pipeline/plane_floats.h"
#include "pipeline/testing/chunk.h"

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

double CorrelationBy(const std::string& text) {
  const KvBuffer chunk = BiasedKeys();
  std::vector<std::byte> frame;
  const Status encoded = EncodeFrame(chunk.view(), ParseProfile(text).value(), {}, frame);
  EXPECT_TRUE(encoded.has_value()) << text << ": " << encoded.error().message;
  KvBuffer decoded;
  EXPECT_TRUE(DecodeFrame(frame, {}, decoded)) << text;
  return LogitCorrelation(testing::PlaneValues(chunk.view().layers[0].k),
                          testing::PlaneValues(std::as_const(decoded).view().layers[0].k));
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

}  // namespace
}  // namespace kvserve
