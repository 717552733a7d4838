#include "pipeline/dropped_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvserve {
namespace {

using ::testing::ElementsAre;

constexpr std::uint8_t kKept = 6;
constexpr std::uint8_t kGone = kDroppedToken;

struct Planes {
  std::vector<OrderedPlane<std::byte>> ordered;
  std::vector<SymbolPlane> symbols;

  void Add(TokenRange tokens, std::vector<std::uint8_t> classes) {
    ordered.push_back({0, PlaneKind::kKey, tokens, {}});
    SymbolPlane plane;
    plane.tokens = tokens.size();
    plane.token_classes = std::move(classes);
    symbols.push_back(plane);
  }
};

TEST(DroppedTokens, AreThoseThatNoPlaneHolds) {
  Planes planes;
  planes.Add({10, 14}, {kGone, kGone, kKept, kGone});
  planes.Add({10, 14}, {kGone, kKept, kKept, kGone});
  planes.Add({12, 14}, {kKept, kGone});  // of a window
  DroppedTokens dropped;
  dropped.Collect({10, 14}, planes.ordered, planes.symbols);
  EXPECT_THAT(dropped.common(), ElementsAre(1, 0, 0, 1));
  EXPECT_TRUE(dropped.any());
  EXPECT_TRUE(dropped.partly());  // token 11
}

TEST(DroppedTokens, CommonOnesAreNotPartly) {
  Planes planes;
  planes.Add({0, 3}, {kKept, kGone});  // token 0 is raw
  planes.Add({0, 3}, {kKept, kGone});
  planes.Add({3, 3}, {});
  DroppedTokens dropped;
  dropped.Collect({0, 3}, planes.ordered, planes.symbols);
  EXPECT_THAT(dropped.common(), ElementsAre(0, 0, 1));
  EXPECT_FALSE(dropped.partly());
}

// A plane without classes holds all its tokens.
TEST(DroppedTokens, APlaneWithoutClassesHoldsEverything) {
  Planes planes;
  planes.Add({0, 3}, {kKept, kGone, kGone});
  planes.Add({0, 2}, {});
  DroppedTokens dropped;
  dropped.Collect({0, 3}, planes.ordered, planes.symbols);
  EXPECT_THAT(dropped.common(), ElementsAre(0, 0, 1));
  EXPECT_TRUE(dropped.partly());
  dropped.Collect({0, 2}, std::span(planes.ordered).last(1), std::span(planes.symbols).last(1));
  EXPECT_FALSE(dropped.any());
  EXPECT_FALSE(dropped.partly());
}

// Where no layer holds a token it was not dropped, it is outside of all windows.
TEST(DroppedTokens, ATokenThatNoLayerHoldsWasNotDropped) {
  Planes planes;
  planes.Add({2, 4}, {kKept, kKept});
  DroppedTokens dropped;
  dropped.Collect({0, 4}, planes.ordered, planes.symbols);
  EXPECT_FALSE(dropped.any());
}

TEST(DroppedTokens, RowsBecomeZero) {
  SymbolPlane plane;
  plane.token_classes = {kKept, kGone};
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  ZeroDropped(plane, {values.data(), 3, 1, 2});
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 0, 0));
}

}  // namespace
}  // namespace kvserve
