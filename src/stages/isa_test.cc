// Frames do not depend on the instruction set: the same bytes come out, and the same values go in.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/isa/isa_testing.h"
#include "kvserve/codec.h"
#include "pipeline/testing/chunk.h"
#include "stages/testing/chains.h"
#include "stages/testing/frames.h"

namespace kvserve {
namespace {

void CheckChain(const std::string& text, const ConstKvView& view) {
  const Profile profile = ParseProfile(text).value();
  std::vector<std::byte> expected;
  ASSERT_TRUE(testing::EncodeSample(view, profile, expected)) << text;
  KvBuffer values;
  ASSERT_TRUE(testing::DecodeSample(expected, values)) << text;
  ForEachIsa([&] {
    std::vector<std::byte> frame;
    ASSERT_TRUE(testing::EncodeSample(view, profile, frame)) << text;
    EXPECT_EQ(frame, expected) << text;
    KvBuffer decoded;
    ASSERT_TRUE(testing::DecodeSample(expected, decoded)) << text;
    EXPECT_EQ(
        testing::Difference(testing::AsConst(values.view()), testing::AsConst(decoded.view())), "")
        << text;
  });
}

constexpr std::size_t kParts = 4;  // that the chains are tested in, to run side by side

class EveryIsa : public ::testing::TestWithParam<std::tuple<DType, std::size_t>> {};

TEST_P(EveryIsa, GivesTheSameFramesAndValues) {
  const auto [dtype, part] = GetParam();
  const KvGeometry geometry = testing::MakeGeometry(dtype, {{3, 80, 96}, {2, 64, 64}, {1, 7, 0}});
  const KvBuffer chunk = testing::MakeChunk(geometry, {0, 150});  // enough symbols for all lanes
  std::vector<std::string> chains = testing::AllChains();
  for (std::string& text : testing::AllSettings()) chains.push_back(std::move(text));
  for (std::size_t i = part; i < chains.size(); i += kParts) CheckChain(chains[i], chunk.view());
}

INSTANTIATE_TEST_SUITE_P(Chains, EveryIsa,
                         ::testing::Combine(::testing::Values(DType::kFloat16, DType::kBFloat16,
                                                              DType::kFloat32),
                                            ::testing::Range(std::size_t{0}, kParts)));

}  // namespace
}  // namespace kvserve
