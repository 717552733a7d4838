// Headers stay small beside a frame's payload: size is part of the format's promise.
#include <gtest/gtest.h>

#include "frame/frame.h"
#include "frame/layout.h"
#include "frame/testing/sample_frame.h"

namespace kvserve {
namespace {

std::size_t HeaderBytes(const FrameHeader& header) {
  std::vector<std::byte> bytes;
  EXPECT_TRUE(WriteFrame(header, {}, bytes));
  return bytes.size();
}

TEST(HeaderSize, EqualLayersCostOneRun) {
  const std::vector<Section> sections = {{SectionKind::kSide, {}}, {SectionKind::kSymbols, {}}};
  std::vector<std::byte> bytes;
  ASSERT_TRUE(WriteFrame(testing::SmolHeader(), sections, bytes));
  EXPECT_LE(bytes.size(), 160U);
  auto deep = testing::SmolHeader();
  deep.model_layers = kMaxLayers;
  const auto layer = deep.layers[0];
  deep.layers.assign(kMaxLayers, layer);
  for (std::uint32_t i = 0; i < kMaxLayers; ++i) deep.layers[i].layer = i;
  EXPECT_LE(HeaderBytes(deep), 162U);
}

TEST(HeaderSize, AlternatingShapesCostThreeBytesPerRun) {
  auto shorter = testing::WindowedHeader();
  shorter.layers.resize(48);  // 16 of 20 runs
  EXPECT_EQ(HeaderBytes(testing::WindowedHeader()) - HeaderBytes(shorter), 4U * 3U);
}

TEST(HeaderSize, ShapesAreBounded) {
  auto header = testing::SmolHeader();
  header.model_layers = kMaxShapes + 1;
  const auto layer = header.layers[0];
  header.layers.assign(kMaxShapes + 1, layer);
  for (std::uint32_t i = 0; i <= kMaxShapes; ++i) {
    header.layers[i].layer = i;
    header.layers[i].geometry.k_dim = i + 1;
  }
  std::vector<std::byte> bytes;
  EXPECT_FALSE(WriteFrame(header, {}, bytes));
  header.layers.pop_back();
  EXPECT_TRUE(WriteFrame(header, {}, bytes));
  ASSERT_TRUE(ReadFrame(bytes));
}

}  // namespace
}  // namespace kvserve
