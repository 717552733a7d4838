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
  coded.bytes.resize(GridCode::kMaxBytes);
  std::size_t used = 0;
  coded.grid = code.Write(range, coded.bytes.data(), used);
  coded.bytes.resize(used);
  return coded;
}

GridCode For(std::uint32_t levels, const std::vector<MinMax>& ranges,
             GridForm form = GridForm::kSpan) {
  std::vector<float> low, high;
  for (const MinMax& range : ranges) {
    low.push_back(range.low);
    high.push_back(range.high);
  }
  return GridCode::For(levels, form, low, high);
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

std::vector<MinMax> RandomRanges() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<MinMax> ranges;
  for (int i = 0; i < 500; ++i) {
    const float scale = std::exp2(30.0F * normal(random));
    const float a = normal(random) * scale + (i % 3 == 0 ? 100.0F * scale : 0.0F);
    const float b = normal(random) * scale;
    if (std::max(std::fabs(a), std::fabs(b)) > kLargestGridValue) continue;
    ranges.push_back({std::min(a, b), std::max(a, b)});
  }
  return ranges;
}

TEST(GridCode, RandomRangesAreCoveredByTheGridThatIsRead) {
  const auto ranges = RandomRanges();
  for (const std::uint32_t levels : {2U, 3U, 4U, 8U, 16U, 255U, 256U}) {
    for (const GridForm form : {GridForm::kSpan, GridForm::kSpanZero}) {
      const auto code = For(levels, ranges, form);
      for (const auto& range : ranges) CheckRange(code, levels, range);
    }
  }
}

TEST(GridCode, ReadingAllIsReadingEach) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const float bias : {0.0F, 500.0F}) {  // without and with codes beyond the shortest
    for (const GridForm form : {GridForm::kSpan, GridForm::kSymmetric}) {
      std::vector<MinMax> ranges;
      for (int i = 0; i < 77; ++i) {
        const float low = normal(random) + (i % 11 == 3 ? bias : 0.0F);
        ranges.push_back({low, low + std::fabs(normal(random))});
      }
      const auto code = For(8, ranges, form);
      std::vector<std::byte> bytes;
      for (const auto& range : ranges) {
        const auto coded = Code(code, range).bytes;
        bytes.insert(bytes.end(), coded.begin(), coded.end());
      }
      bytes.push_back(std::byte{7});
      std::vector<float> zero(ranges.size()), step(ranges.size());
      ByteReader all(bytes);
      ASSERT_TRUE(code.ReadAll(all, zero, step));
      EXPECT_EQ(all.remaining(), 1U);
      ByteReader each(bytes);
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const auto grid = code.Read(each);
        ASSERT_TRUE(grid);
        EXPECT_EQ(grid->zero, zero[i]);
        EXPECT_EQ(grid->step, step[i]);
      }
      ByteReader cut(std::span<const std::byte>(bytes).first(bytes.size() - 2));
      EXPECT_FALSE(code.ReadAll(cut, zero, step));
    }
  }
}

// Short grids hold 0 if their range does.
TEST(GridCode, SpanZeroHasZeroAsAPoint) {
  const std::vector<MinMax> ranges = {{-3.1F, 2.9F}, {-0.2F, 2.9F}, {-7.3F, 0.01F}, {0.0F, 1.0F}};
  for (const std::uint32_t levels : {2U, 3U, 4U, 15U, 16U}) {
    const auto code = For(levels, ranges, GridForm::kSpanZero);
    for (const auto& range : ranges) {
      const Grid grid = Code(code, range).grid;
      const float symbol = -grid.zero / grid.step;
      EXPECT_EQ(symbol, std::round(symbol)) << range.low << " " << levels;
      EXPECT_GE(symbol, 0.0F);
      EXPECT_LT(symbol, static_cast<float>(levels));
    }
  }
}

TEST(GridCode, SymmetricRangesTakeOneByteAndReachBothEnds) {
  const auto ranges = RandomRanges();
  for (const std::uint32_t levels : {2U, 3U, 4U, 15U, 256U}) {
    const auto code = For(levels, ranges, GridForm::kSymmetric);
    for (const auto& range : ranges) {
      const Coded coded = Code(code, range);
      ByteReader reader(coded.bytes);
      const auto read = code.Read(reader);
      ASSERT_TRUE(read);
      EXPECT_EQ(reader.remaining(), 0U);
      ASSERT_EQ(read->zero, coded.grid.zero);
      ASSERT_EQ(read->step, coded.grid.step);
      const double largest = std::max(std::fabs(range.low), std::fabs(range.high));
      EXPECT_GE(-read->zero * 1.000001, largest);
      EXPECT_LE(-read->zero, std::max(largest * 1.0626, 0x1p-112));
      EXPECT_EQ(read->zero + read->step * static_cast<float>(levels - 1), -read->zero);
    }
  }
  const std::vector<MinMax> ordinary = {{-3.1F, 2.9F}, {0.02F, 0.03F}, {0.0F, 0.0F}};
  const auto code = For(16, ordinary, GridForm::kSymmetric);
  for (const auto& range : ordinary) EXPECT_EQ(Code(code, range).bytes.size(), 1U);
}

// Steps around the normal floats are read in another way than those within.
TEST(GridCode, StepsAtEveryExponentAreReadAsWritten) {
  for (int exponent = -118; exponent < 112; ++exponent) {
    const float scale = std::ldexp(1.0F, exponent);
    const MinMax range{-0.3F * scale, 0.9F * scale};
    for (const GridForm form : {GridForm::kSpan, GridForm::kSymmetric}) {
      const auto code = For(5, {range}, form);
      const Coded coded = Code(code, range);
      ByteReader reader(coded.bytes);
      const auto read = code.Read(reader);
      ASSERT_TRUE(read) << exponent;
      EXPECT_EQ(read->zero, coded.grid.zero) << exponent;
      EXPECT_EQ(read->step, coded.grid.step) << exponent;
    }
  }
}

TEST(GridCode, OrdinaryRangesTakeTwoBytes) {
  const std::vector<MinMax> ranges = {{-3.1F, 2.9F}, {-0.02F, 0.03F}, {0.0F, 1.0F}};
  const auto code = For(16, ranges);
  for (const auto& range : ranges) EXPECT_EQ(Code(code, range).bytes.size(), 2U);
}

TEST(GridCode, EqualValuesAreExact) {
  const auto code = For(4, {});
  for (const float value : {0.0F, -0.0F, 1.0F / 3.0F, -1e30F, 1e-45F}) {
    const auto coded = Code(code, {value, value});
    EXPECT_EQ(coded.grid.zero, value);
    EXPECT_EQ(coded.grid.step, 0.0F);
    EXPECT_FALSE(std::signbit(coded.grid.zero) && value == 0.0F);
  }
}

TEST(GridCode, NarrowRangeFarFromZeroKeepsItsBound) {
  const MinMax range{1000.0F, std::nextafter(1000.0F, 2000.0F)};
  CheckRange(For(16, {range}), 16, range);
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

// Adding one to the largest number gives 0, which would be a fine offset.
TEST(GridCode, TheLargestOffsetIsRefused) {
  const std::vector<std::uint8_t> bytes = {10,   0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                           0xFF, 0xFF, 0xFF, 0xFF, 0x01};
  for (const std::int16_t base : {0, -110}) {  // steps in float and in double
    ByteReader reader(std::as_bytes(std::span(bytes)));
    EXPECT_FALSE(GridCode(16, base).Read(reader).has_value()) << base;
  }
}

}  // namespace
}  // namespace kvserve
