#include "transfer/prefix_seed.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvserve {
namespace {

TEST(PrefixSeed, DependsOnModelAndContext) {
  const Fingerprint model{{1}};
  const Fingerprint other{{2}};
  std::vector<Fingerprint> seeds = {
      PrefixSeed(model, ""),       PrefixSeed(other, ""),
      PrefixSeed(model, "lora 1"), PrefixSeed(model, "lora 2"),
      PrefixSeed(other, "lora 1"), PrefixSeed(model, std::string("lora 1\0", 7))};
  EXPECT_EQ(seeds[0], model);
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) EXPECT_FALSE(seeds[i] == seeds[k]) << i << " " << k;
  }
}

}  // namespace
}  // namespace kvserve
