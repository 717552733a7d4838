// Bytes and errors of real KV by every sensible chain, compared with sizes.csv, so that a change of
// either is a difference to be reviewed. KVSERVE_RECORD_GOLDEN=1 writes them anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "evaluation/speed/sample_kv.h"
#include "golden/size_table.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

// The sample's values are fixed, and arithmetic is the same on every machine.
constexpr testing::SizeTolerance kExact = {.foreign_bytes = 0.02};

testing::SizeRows SampleSizes(DType dtype) {
  KvBuffer sample;
  const auto status = LoadSample(dtype, sample);
  EXPECT_TRUE(status) << status.error().message;
  return testing::MeasureSizes(std::as_const(sample).view());
}

TEST(Sizes, OfTheSampleInFloat16) {
  testing::CheckSizes(KVSERVE_SIZES_FILE, "smollm2-128-f16", SampleSizes(DType::kFloat16), kExact);
}

TEST(Sizes, OfTheSampleInBFloat16) {
  testing::CheckSizes(KVSERVE_SIZES_FILE, "smollm2-128-bf16", SampleSizes(DType::kBFloat16),
                      kExact);
}

TEST(Sizes, AreOfEveryStage) {
  const auto chains = testing::SizeChains();
  for (const StageEntry& entry : BuiltinStages()) {
    if (entry.info->kind == StageKind::kSelector) continue;
    EXPECT_TRUE(std::ranges::any_of(chains, [&](const std::string& chain) {
      return chain.find(entry.info->name) != std::string::npos;
    })) << entry.info->name;
  }
}

}  // namespace
}  // namespace kvserve
