#include "kernels/quantize/grid_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace kvserve {
namespace {

struct Coded {
  Grid grid;
  std::vector<std::byte> bytes;
};

Coded Code(const GridCode& code, const MinMax& range) {
  Coded coded;
  ByteWriter writer(coded.bytes);
  coded.grid = code.Write(range, writer);
  return coded;
}

// The decoder's grid is the encoder's, and both ends of the range are within half a step.
void CheckRange(const GridCode& code, std::uint32_t levels, const MinMax& range) {
  const Coded coded = Code(code, range);
  ByteReader reader(coded.bytes);
  const auto read = code.Read(reader);
  ASSERT_TRUE(read);
  EXPECT_EQ(reader.remaining(), 0U);
  ASSERT_EQ(read->zero, coded.grid.zero);
  ASSERT_EQ(read->step, coded.grid.step);
  const double last = coded.grid.zero + double{coded.grid.step} * (levels - 1);
  const double slack =
      0.5 * coded.grid.step + 1e-6 * std::max(std::fabs(range.low), std::fabs(range.high));
  EXPECT_LE(std::fabs(0.5 * (last + coded.grid.zero) - 0.5 * (double{range.low} + range.high)),
            slack);
  EXPECT_LE(coded.grid.zero - range.low, slack);
  EXPECT_LE(range.high - last, slack);
  const double exact = (double{range.high} - range.low) / (levels - 1);
  EXPECT_LE(coded.grid.step, std::max(exact * 17.0 / 16.0, 0x1p-120));
}

TEST(GridCode, RandomRangesAreCoveredByTheGridThatIsRead) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const std::uint32_t levels : {2U, 3U, 4U, 8U, 16U, 255U, 256U}) {
    std::vector<MinMax> ranges;
    for (int i = 0; i < 500; ++i) {
      const float scale = std::exp2(30.0F * normal(random));
      const float a = normal(random) * scale + (i % 3 == 0 ? 100.0F * scale : 0.0F);
      const float b = normal(random) * scale;
      if (std::max(std::fabs(a), std::fabs(b)) > kLargestGridValue) continue;
      ranges.push_back({std::min(a, b), std::max(a, b)});
    }
    const auto code = GridCode::For(levels, ranges);
    for (const auto& range : ranges) CheckRange(code, levels, range);
  }
}

TEST(GridCode, OrdinaryRangesTakeTwoBytes) {
  const std::vector<MinMax> ranges = {{-3.1F, 2.9F}, {-0.02F, 0.03F}, {0.0F, 1.0F}};
  const auto code = GridCode::For(16, ranges);
  for (const auto& range : ranges) EXPECT_EQ(Code(code, range).bytes.size(), 2U);
}

TEST(GridCode, EqualValuesAreExact) {
  const auto code = GridCode::For(4, {});
  for (const float value : {0.0F, -0.0F, 1.0F / 3.0F, -1e30F, 1e-45F}) {
    const auto coded = Code(code, {value, value});
    EXPECT_EQ(coded.grid.zero, value);
    EXPECT_EQ(coded.grid.step, 0.0F);
    EXPECT_FALSE(std::signbit(coded.grid.zero) && value == 0.0F);
  }
}

TEST(GridCode, NarrowRangeFarFromZeroKeepsItsBound) {
  const MinMax range{1000.0F, std::nextafter(1000.0F, 2000.0F)};
  CheckRange(GridCode::For(16, std::span(&range, 1)), 16, range);
}

TEST(GridCode, HostileBytesAreRefused) {
  const GridCode code(16, 120);
  const auto refused = [&](std::vector<std::uint8_t> bytes) {
    ByteReader reader(std::as_bytes(std::span(bytes)));
    return !code.Read(reader).has_value();
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({0, 1, 2}));
  EXPECT_TRUE(refused({0, 0, 0, 0xC0, 0x7F}));               // NaN
  EXPECT_TRUE(refused({1, 0, 0, 0, 0, 0, 0, 0x80, 0x7F}));   // infinite step
  EXPECT_TRUE(refused({1, 0, 0, 0, 0, 0, 0, 0x80, 0xBF}));   // negative step
  EXPECT_TRUE(refused({255, 0}));                            // 2^135
  EXPECT_TRUE(refused({10, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F}));  // offset
  EXPECT_TRUE(refused({10, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}));
}

}  // namespace
}  // namespace kvserve
