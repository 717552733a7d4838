// Properties of every setting of every stage over shapes, dtypes and layouts, sampled from their
// product by a fixed sequence: bytes do not depend on executor, layout, threads or instruction set,
// decoded values neither, lossless chains give every bit back, and quantizers keep their error
// bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/split_mix.h"
#include "base/testing/sanitizers.h"
#include "kernels/isa/isa_testing.h"
#include "kvserve/codec.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/chunk.h"
#include "stages/testing/chains.h"
#include "stages/testing/frames.h"
#include "stages/testing/reference.h"

namespace kvserve {
namespace {

using testing::LayerShape;

// Values of a chunk's largest plane, for the time that a test takes.
constexpr std::size_t kMostValues = testing::kSanitized ? 8000 : 60000;
constexpr unsigned kShapesPerChain = testing::kSanitized ? 2 : 12;

constexpr std::uint32_t kDims[] = {1, 8, 64, 80, 96, 100, 112, 120, 128, 192, 256, 512, 576};
constexpr std::uint32_t kHeads[] = {1, 3, 8};
constexpr std::uint32_t kTokens[] = {0, 1, 2, 63, 64, 257};
constexpr DType kDTypes[] = {
    DType::kFloat16,      DType::kBFloat16,       DType::kFloat32,    DType::kFloat16,
    DType::kBFloat16,     DType::kFloat32,  // most caches
    DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2, DType::kFloat8E5M2FNUZ};

class Sequence : public SplitMix64 {
 public:
  using SplitMix64::SplitMix64;
  template <typename T, std::size_t kSize>
  const T& Of(const T (&values)[kSize]) {
    return values[Next() % kSize];
  }
};

struct Sample {
  KvGeometry geometry;
  TokenRange tokens;
  std::uint32_t total_tokens = 0;
  std::uint32_t seed = 0;
};

// Layers of one shape: K and V, K unlike V, a single plane, and one with a window.
// A calibrated matrix over all columns of a plane has their square of entries.
constexpr std::uint32_t kMostKltColumns = 640;

Sample DrawSample(Sequence& sequence, bool klt) {
  Sample sample;
  std::uint32_t heads = sequence.Of(kHeads);
  const std::uint32_t dim = sequence.Of(kDims);
  if (klt) heads = std::min(heads, kMostKltColumns / dim);
  std::uint32_t tokens = sequence.Of(kTokens);
  while (std::size_t{tokens} * heads * dim > kMostValues) tokens = tokens > 64 ? 64 : tokens / 2;
  std::vector<LayerShape> layers = {{heads, dim, dim}};
  switch (sequence.Next() % 4) {
    case 0: layers.push_back({klt ? 1 : heads, dim, sequence.Of(kDims)}); break;
    case 1: layers.push_back({heads, dim, 0}); break;
    case 2: layers.push_back({heads, dim, dim, 3}); break;
    default: break;
  }
  sample.geometry = testing::MakeGeometry(sequence.Of(kDTypes), layers);
  const std::uint32_t first = sequence.Next() % 3 == 0 ? 1000 : 0;
  sample.tokens = {first, first + tokens};
  sample.total_tokens = sample.tokens.end + (sequence.Next() % 2 == 0 ? 0 : 2);
  sample.seed = static_cast<std::uint32_t>(sequence.Next() % 1000);
  return sample;
}

std::string Where(const std::string& chain, const Sample& sample) {
  std::string where = chain + " " + std::string(DTypeName(sample.geometry.dtype));
  for (const LayerGeometry& layer : sample.geometry.layers) {
    where += " " + std::to_string(layer.kv_heads) + "x" + std::to_string(layer.k_dim) + "+" +
             std::to_string(layer.v_dim) + (layer.window_tokens > 0 ? "w" : "");
  }
  return where + " tokens " + std::to_string(sample.tokens.begin) + ".." +
         std::to_string(sample.tokens.end);
}

void CheckSameBytes(const ConstKvView& view, const Profile& profile, std::uint32_t threads,
                    const std::vector<std::byte>& expected, const char* what) {
  std::vector<std::byte> frame;
  const auto status = testing::EncodeSample(view, profile, frame, threads);
  ASSERT_TRUE(status.has_value()) << what << ": " << status.error().message;
  EXPECT_TRUE(frame == expected) << what << " changes the bytes";
}

void CheckSameValues(const std::vector<std::byte>& frame, std::uint32_t threads,
                     const KvBuffer& expected, const char* what) {
  KvBuffer decoded;
  const auto length = testing::DecodeSample(frame, decoded, threads);
  ASSERT_TRUE(length.has_value()) << what << ": " << length.error().message;
  EXPECT_EQ(testing::Difference(std::as_const(decoded).view(), expected.view()), "") << what;
}

void CheckProperties(const Profile& profile, const KvBuffer& chunk, Sequence& sequence) {
  std::vector<std::byte> frame;
  const auto status = testing::EncodeSample(chunk.view(), profile, frame);
  ASSERT_TRUE(status.has_value()) << status.error().message;
  KvBuffer decoded;
  const auto length = testing::DecodeSample(frame, decoded);
  ASSERT_TRUE(length.has_value()) << length.error().message;
  EXPECT_EQ(*length, frame.size());
  if (testing::IsLossless(profile)) {
    EXPECT_EQ(testing::Difference(chunk.view(), std::as_const(decoded).view()), "");
  }
  CodedSections sections;
  ASSERT_TRUE(testing::EncodeByReference(chunk.view(), profile, sections));
  EXPECT_TRUE(testing::HasSections(frame, sections)) << "the reference executor's bytes differ";
  KvBuffer plain;
  ASSERT_TRUE(testing::DecodeByReference(frame, plain));
  EXPECT_EQ(testing::Difference(std::as_const(plain).view(), std::as_const(decoded).view()), "");
  const testing::StridedChunk strided(chunk.view(), sequence.Of(testing::kLayouts));
  CheckSameBytes(strided.const_view(), profile, 1, frame, "a layout");
  CheckSameBytes(chunk.view(), profile, 3, frame, "a number of threads");
  CheckSameValues(frame, 3, decoded, "threads");
  ForEachIsa([&] {
    CheckSameBytes(chunk.view(), profile, 1, frame, "an instruction set");
    CheckSameValues(frame, 1, decoded, "an instruction set");
  });
}

std::vector<std::string> Chains() {
  std::vector<std::string> chains = testing::AllChains();
  const auto settings = testing::AllSettings();
  chains.insert(chains.end(), settings.begin(), settings.end());
  return chains;
}

class EveryStage : public ::testing::TestWithParam<unsigned> {};

// One round per parameter, so that ctest shares them out.
TEST_P(EveryStage, KeepsItsPropertiesOverShapes) {
  Sequence sequence(GetParam() + 1);
  for (const std::string& chain : Chains()) {
    const Profile profile = ParseProfile(chain).value();
    const Sample sample = DrawSample(sequence, chain.find("klt") != std::string::npos ||
                                                   chain.find("whiten") != std::string::npos);
    SCOPED_TRACE(Where(chain, sample));
    CheckProperties(
        profile,
        testing::MakeChunk(sample.geometry, sample.tokens, sample.total_tokens, sample.seed),
        sequence);
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Rounds, EveryStage, ::testing::Range(0U, kShapesPerChain));

}  // namespace
}  // namespace kvserve
