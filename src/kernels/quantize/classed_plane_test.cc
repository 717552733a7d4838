// Classes over shared ranges: error bounds by run, values far outside of grids, rows that are not
// kept, and bytes that are damaged.
#include "kernels/quantize/classed_plane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

constexpr std::size_t kRows = 41, kHeads = 5, kDim = 24, kColumns = kHeads * kDim;

// Rows 3 of 4 are kept; of these every third, and heads 1 and 2, are apart.
struct Case {
  explicit Case(RangeAxis axis, std::uint32_t coarse, std::uint32_t fine) {
    options.axis = axis;
    options.levels = 12;
    for (std::uint32_t row = 0; row < kRows; ++row) {
      if (row % 4 != 1) kept.push_back(row);
    }
    for (std::uint32_t i = 0; i < kept.size(); ++i) rows[i % 3 == 0 ? 1 : 0].push_back(i);
    heads[0] = {0, 3, 4};
    heads[1] = {1, 2};
    for (const auto& of_heads : heads) {
      runs.push_back({rows[0], of_heads, coarse});
      runs.push_back({rows[1], of_heads, fine});
    }
  }
  UniformOptions options;
  std::vector<std::uint32_t> kept;
  std::vector<std::uint32_t> rows[2], heads[2];
  std::vector<ClassedRun> runs;
};

std::vector<float> Values(float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * (normal(random) + (i % 7 == 0 ? 9.0F : 0.0F));
  }
  return values;
}

struct Coded {
  std::vector<std::byte> side;
  std::vector<std::uint8_t> symbols;
};

Coded Encode(const Case& setup, const std::vector<float>& values) {
  Arena arena;
  Coded coded;
  coded.symbols.assign(setup.kept.size() * kColumns, 0xEE);
  ByteWriter side(coded.side);
  ClassedPlane(setup.options, setup.kept, kHeads, kDim, arena)
      .Encode(values, setup.runs, side, coded.symbols);
  return coded;
}

Result<std::vector<float>> Decode(const Case& setup, const Coded& coded) {
  Arena arena;
  std::vector<float> values(kRows * kColumns, -7.0F);
  ByteReader side(coded.side);
  ClassedPlane plane(setup.options, setup.kept, kHeads, kDim, arena);
  if (auto status = plane.Decode(side, setup.runs, coded.symbols, values); !status) {
    return tl::unexpected(status.error());
  }
  EXPECT_EQ(side.remaining(), 0U);
  return values;
}

std::size_t RangeOf(const Case& setup, std::size_t i) {
  if (setup.options.axis == RangeAxis::kChannel) return i % kColumns;
  return setup.options.axis == RangeAxis::kToken ? i / kColumns : 0;
}

void ExpectBounds(const Case& setup, const std::vector<float>& x, const std::vector<float>& y) {
  std::vector<double> low(kRows + kColumns, 1e300), high(kRows + kColumns, -1e300);
  std::vector<bool> keeps(kRows);
  for (const std::uint32_t row : setup.kept) keeps[row] = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!keeps[i / kColumns]) continue;
    low[RangeOf(setup, i)] = std::min<double>(low[RangeOf(setup, i)], x[i]);
    high[RangeOf(setup, i)] = std::max<double>(high[RangeOf(setup, i)], x[i]);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (keeps[i / kColumns]) continue;
    EXPECT_EQ(y[i], -7.0F) << "not kept, yet written";
  }
  for (const ClassedRun& run : setup.runs) {
    const double levels = setup.options.levels;
    const double spanned = run.levels > setup.options.levels ? levels - 0.5 : levels - 1;
    const double share = (setup.options.means ? 1.0 : 0.5) * spanned / (run.levels - 1);
    for (const std::uint32_t index : run.rows) {
      for (std::size_t c = 0; c < run.heads.size() * kDim; ++c) {
        const std::size_t i = setup.kept[index] * kColumns + run.heads[c / kDim] * kDim + c % kDim;
        const std::size_t range = RangeOf(setup, i);
        const double step = (high[range] - low[range]) / (levels - 1) * 17 / 16;
        const double rounding = 1e-6 * std::max(std::fabs(low[range]), std::fabs(high[range]));
        ASSERT_LE(std::fabs(double{x[i]} - y[i]), share * step * 1.0001 + rounding) << i;
      }
    }
  }
}

TEST(ClassedPlane, ErrorIsHalfTheStepOfTheRun) {
  for (const RangeAxis axis : {RangeAxis::kChannel, RangeAxis::kToken, RangeAxis::kTensor}) {
    for (const auto& [coarse, fine] : {std::pair{2U, 256U}, {12U, 12U}, {3U, 40U}, {13U, 11U}}) {
      // The last two need a shift.
      for (const float scale : {1.0F, 300.0F, 0x1p110F, 0x1p-100F}) {
        for (const bool means : {false, true}) {
          Case setup(axis, coarse, fine);
          setup.options.means = means;
          const auto values = Values(scale, coarse + fine);
          const auto decoded = Decode(setup, Encode(setup, values));
          ASSERT_TRUE(decoded);
          ExpectBounds(setup, values, *decoded);
        }
      }
    }
  }
}

TEST(ClassedPlane, IsTheSameOnEveryInstructionSet) {
  Case setup(RangeAxis::kChannel, 5, 33);
  setup.options.means = true;
  const auto values = Values(3.0F, 5);
  const Coded expected = Encode(setup, values);
  const auto decoded = Decode(setup, expected);
  ForEachIsa([&] {
    const Coded coded = Encode(setup, values);
    EXPECT_EQ(coded.side, expected.side);
    EXPECT_EQ(coded.symbols, expected.symbols);
    EXPECT_EQ(Decode(setup, expected).value(), decoded.value());
  });
}

TEST(ClassedPlane, TruncatedSideBytesAreRefused) {
  Case setup(RangeAxis::kToken, 5, 33);
  setup.options.means = true;
  Coded coded = Encode(setup, Values(3.0F, 5));
  while (!coded.side.empty()) {
    coded.side.pop_back();
    const auto decoded = Decode(setup, coded);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code, ErrorCode::kCorruptData);
  }
}

TEST(ClassedPlane, APlaneWithoutKeptRowsHasNoBytes) {
  Case setup(RangeAxis::kChannel, 5, 33);
  setup.kept.clear();
  setup.runs.clear();
  const Coded coded = Encode(setup, Values(1.0F, 1));
  EXPECT_TRUE(coded.side.empty());
  EXPECT_TRUE(Decode(setup, coded));
}

}  // namespace
}  // namespace kvserve
