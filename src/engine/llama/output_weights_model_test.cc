// Weights that the file has must be those that the graph multiplies with.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/llama/model_test_support.h"

namespace kvserve {
namespace {

TEST(OutputWeightsModel, VisitsEveryLayerWithItsShape) {
  constexpr std::size_t kHidden[] = {576, 640};
  constexpr std::size_t kInputs[] = {9 * 64, 4 * 256};
  for (std::size_t model = 0; model < 2; ++model) {
    const auto engine = OpenTestModel(kTestModels[model], DType::kFloat16);
    ASSERT_NE(engine, nullptr);
    std::uint32_t next = 0;
    const Status visited = engine->VisitOutputWeights(
        [&](std::uint32_t layer, std::span<const float> weights, std::size_t inputs) -> Status {
          EXPECT_EQ(layer, next++);
          EXPECT_EQ(inputs, kInputs[model]);
          EXPECT_EQ(weights.size(), kInputs[model] * kHidden[model]);
          double squares = 0;
          for (const float weight : weights) squares += double{weight} * weight;
          EXPECT_GT(squares, 1.0);
          EXPECT_TRUE(std::isfinite(squares));
          return {};
        });
    ASSERT_TRUE(visited) << visited.error().message;
    EXPECT_EQ(next, engine->info().geometry.layers.size());
  }
}

TEST(OutputWeightsModel, ErrorOfTheVisitEndsIt) {
  const auto engine = OpenTestModel(kTestModels[0], DType::kFloat16);
  ASSERT_NE(engine, nullptr);
  int calls = 0;
  const Status visited = engine->VisitOutputWeights([&](auto&&...) -> Status {
    ++calls;
    return MakeError(ErrorCode::kCancelled, "enough");
  });
  ASSERT_FALSE(visited);
  EXPECT_EQ(visited.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace kvserve
