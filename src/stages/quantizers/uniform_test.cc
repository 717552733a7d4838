// The error bound of uniform quantization as a property, over shapes, dtypes, parameters and
// values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "pipeline/settings.h"
#include "pipeline/stage.h"

namespace kvserve {

const StageEntry& UniformStage();

namespace {

struct PlaneSetup {
  std::uint32_t tokens = 1, heads = 1, dim = 1;
  std::uint32_t first_token = 16;
  PlaneKind kind = PlaneKind::kKey;
  DType dtype = DType::kFloat16;
  double levels = 16, axis = 0, group = 64, raw_first = 1;
  [[nodiscard]] std::string text() const {
    return "tokens " + std::to_string(tokens) + " heads " + std::to_string(heads) + " dim " +
           std::to_string(dim) + " levels " + std::to_string(levels) + " axis " +
           std::to_string(axis) + " group " + std::to_string(group);
  }
};

struct Decoded {
  std::vector<float> values;
  std::vector<std::byte> side;
  std::vector<std::uint8_t> symbols;
};

class UniformTest : public ::testing::Test {
 protected:
  // Quantizes and dequantizes; fails the test on an error or on side bytes left over.
  Decoded Run(const PlaneSetup& setup, const std::vector<float>& values) {
    const auto quantizer = Make(setup);
    Plan(setup, *quantizer);
    Decoded result;
    result.symbols.assign(symbols_.count(), 0xEE);
    symbols_.symbols = result.symbols;
    ByteWriter writer(result.side);
    const ConstRealPlane in{values.data(), setup.tokens, setup.heads, setup.dim};
    EXPECT_TRUE(quantizer->Quantize(plane_, in, symbols_, writer));
    for (const auto symbol : result.symbols) EXPECT_LT(symbol, symbols_.alphabet);
    result.values.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
    const RealPlane out{result.values.data(), setup.tokens, setup.heads, setup.dim};
    ByteReader reader(result.side);
    const auto status = quantizer->Dequantize(plane_, symbols_, reader, out);
    EXPECT_TRUE(status.has_value()) << status.error().message;
    EXPECT_EQ(reader.remaining(), 0U);
    return result;
  }

  Status Dequantize(const PlaneSetup& setup, std::span<const std::byte> side) {
    const auto quantizer = Make(setup);
    Plan(setup, *quantizer);
    std::vector<std::uint8_t> symbols(symbols_.count());
    symbols_.symbols = symbols;
    std::vector<float> values(std::size_t{setup.tokens} * setup.heads * setup.dim);
    ByteReader reader(side);
    return quantizer->Dequantize(plane_, symbols_, reader,
                                 {values.data(), setup.tokens, setup.heads, setup.dim});
  }

 private:
  static std::unique_ptr<Quantizer> Make(const PlaneSetup& setup) {
    const std::vector<ParameterValue> parameters = {
        {1, setup.levels}, {2, setup.levels}, {3, setup.axis},     {4, setup.axis},
        {5, setup.group},  {6, setup.group},  {7, setup.raw_first}};
    const auto settings = CheckedSettings(*UniformStage().info, parameters, ErrorCode::kInternal);
    return UniformStage().make_quantizer(settings.value()).value();
  }

  void Plan(const PlaneSetup& setup, const Quantizer& quantizer) {
    geometry_.dtype = setup.dtype;
    frame_.geometry = &geometry_;
    plane_.frame = &frame_;
    plane_.kind = setup.kind;
    plane_.tokens = {setup.first_token, setup.first_token + setup.tokens};
    symbols_ = {};
    symbols_.tokens = setup.tokens;
    ASSERT_TRUE(quantizer.Plan(plane_, setup.dtype, setup.heads, setup.dim, symbols_));
    EXPECT_EQ(symbols_.alphabet, setup.levels);
  }

  KvGeometry geometry_;
  FrameContext frame_;
  PlaneContext plane_;
  SymbolPlane symbols_;
};

// Which range a value belongs to, told independently of the stage.
std::size_t RangeOf(const PlaneSetup& setup, std::size_t index) {
  const std::size_t columns = std::size_t{setup.heads} * setup.dim;
  const std::size_t row = index / columns;
  const std::size_t column = index % columns;
  if (setup.axis == 0) return column;
  if (setup.axis == 1) return row;
  const auto group = static_cast<std::size_t>(setup.group);
  const std::size_t groups = (setup.dim + group - 1) / group;
  return (index / setup.dim) * groups + (column % setup.dim) / group;
}

// Every value is within half of the widest step that the format may choose for its range.
void ExpectBound(const PlaneSetup& setup, const std::vector<float>& x, const std::vector<float>& y,
                 std::size_t first) {
  const std::size_t ranges = x.size() + std::size_t{setup.heads} * setup.dim;
  std::vector<float> low(ranges, std::numeric_limits<float>::infinity());
  std::vector<float> high(ranges, -std::numeric_limits<float>::infinity());
  for (std::size_t i = first; i < x.size(); ++i) {
    low[RangeOf(setup, i)] = std::min(low[RangeOf(setup, i)], x[i]);
    high[RangeOf(setup, i)] = std::max(high[RangeOf(setup, i)], x[i]);
  }
  for (std::size_t i = first; i < x.size(); ++i) {
    const double l = low[RangeOf(setup, i)];
    const double h = high[RangeOf(setup, i)];
    const double half_step = 0.5 * (h - l) / (setup.levels - 1) * 17.0 / 16.0;
    const double rounding = 2e-7 * std::max(std::fabs(l), std::fabs(h)) + 0x1p-121;
    ASSERT_LE(std::fabs(double{x[i]} - y[i]), half_step * 1.0001 + (l == h ? 0.0 : rounding))
        << setup.text() << " index " << i << " value " << x[i] << " got " << y[i];
  }
}

std::vector<float> Random(const PlaneSetup& setup, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> scale, shift;
  const std::size_t columns = std::size_t{setup.heads} * setup.dim;
  for (std::size_t c = 0; c < columns; ++c) {
    scale.push_back(std::exp2(2.0F * normal(random)));
    shift.push_back(random() % 8 == 0 ? 600.0F * normal(random) : 0.0F);
  }
  std::vector<float> values(setup.tokens * columns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale[i % columns] * normal(random) + shift[i % columns];
  }
  return values;
}

TEST_F(UniformTest, ErrorIsAtMostHalfAStepForRandomParameters) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 400; ++trial) {
    PlaneSetup setup;
    setup.tokens = 1 + random() % 40;
    setup.heads = 1 + random() % 3;
    setup.dim = 1 + random() % 130;
    setup.kind = random() % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue;
    setup.levels = trial % 4 == 0 ? 2 + random() % 6 : 2 + random() % 255;
    setup.axis = random() % 3;
    setup.group = 8 + random() % 100;
    const auto values = Random(setup, random);
    ExpectBound(setup, values, Run(setup, values).values, 0);
  }
}

TEST_F(UniformTest, EveryHeadDimensionWorksWithEveryGroup) {
  std::mt19937 random(2);
  for (const std::uint32_t dim :
       {1U, 64U, 80U, 96U, 100U, 112U, 120U, 128U, 192U, 256U, 512U, 576U}) {
    for (const double group : {16, 32, 64, 128}) {
      PlaneSetup setup{.tokens = 3, .heads = 2, .dim = dim, .axis = 2, .group = group};
      const auto values = Random(setup, random);
      ExpectBound(setup, values, Run(setup, values).values, 0);
    }
  }
}

TEST_F(UniformTest, ExtremeValuesKeepTheBound) {
  std::mt19937 random(3);
  for (const double axis : {0, 1, 2}) {
    for (const double levels : {2, 3, 16, 256}) {
      PlaneSetup setup{.tokens = 20,
                       .heads = 1,
                       .dim = 70,
                       .dtype = DType::kFloat32,
                       .levels = levels,
                       .axis = axis};
      auto values = Random(setup, random);
      for (std::size_t i = 0; i < values.size(); i += 70) {
        values[i] = 1e38F * (i % 3 == 0 ? 3.4F : -3.4F);  // an outlier channel
        values[i + 1] = 0.1F;                             // all equal
        values[i + 2] = 0.0F * (i % 2 == 0 ? 1.0F : -1.0F);
      }
      ExpectBound(setup, values, Run(setup, values).values, 0);
      for (auto& value : values) value = 1e-44F * static_cast<float>(random() % 50);
      const auto tiny = Run(setup, values).values;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::fabs(double{values[i]} - tiny[i]), 50e-44 / (levels - 1) * 0.54 + 0x1p-149);
      }
    }
  }
}

TEST_F(UniformTest, EqualChannelsAreExact) {
  for (const double axis : {0, 1, 2}) {
    PlaneSetup setup{.tokens = 5, .heads = 2, .dim = 24, .levels = 2, .axis = axis};
    std::vector<float> values(5 * 48, 1.0F / 3.0F);
    EXPECT_EQ(Run(setup, values).values, values);
  }
}

TEST_F(UniformTest, FirstTokenOfTheRequestIsKeptAndDoesNotWidenRanges) {
  std::mt19937 random(4);
  PlaneSetup setup{.tokens = 30, .heads = 2, .dim = 64, .first_token = 0};
  auto values = Random(setup, random);
  for (std::size_t c = 0; c < 128; ++c) values[c] = 1000.0F + static_cast<float>(c);
  const auto decoded = Run(setup, values);
  EXPECT_EQ(decoded.symbols.size(), 29U * 128U);
  for (std::size_t c = 0; c < 128; ++c) ASSERT_NEAR(decoded.values[c], values[c], 0.5F);
  ExpectBound(setup, values, decoded.values, 128);
  setup.raw_first = 0;
  EXPECT_EQ(Run(setup, values).symbols.size(), 30U * 128U);
  setup.tokens = 1;
  setup.raw_first = 1;
  values.resize(128);
  EXPECT_EQ(Run(setup, values).symbols.size(), 0U);
}

TEST_F(UniformTest, RawTokenBeyondHalfRangeIsKeptInFloat32) {
  PlaneSetup setup{.tokens = 1, .heads = 1, .dim = 8, .first_token = 0, .dtype = DType::kBFloat16};
  const std::vector<float> values = {1e30F, -3.4e38F, 1.0F, 0.0F, 2.0F, 1e-30F, 5.0F, 7.0F};
  EXPECT_EQ(Run(setup, values).values, values);
  const std::vector<float> tiny = {1e-30F, -2e-30F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F};
  EXPECT_EQ(Run(setup, tiny).values, tiny);
}

TEST_F(UniformTest, RangesCostTwoBytesEach) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  PlaneSetup setup{.tokens = 256, .heads = 3, .dim = 64};
  std::vector<float> values(256 * 192);
  for (float& value : values) value = normal(random);
  EXPECT_LE(Run(setup, values).side.size(), 192U * 2 + 16);
}

TEST_F(UniformTest, HostileSideBytesAreRefused) {
  std::mt19937 random(6);
  PlaneSetup setup{.tokens = 9, .heads = 1, .dim = 16, .first_token = 0};
  const auto good = Run(setup, Random(setup, random)).side;
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(Dequantize(setup, std::span(good).first(length))) << length;
  }
  auto wrong_form = good;
  wrong_form[0] = std::byte{2};
  EXPECT_FALSE(Dequantize(setup, wrong_form));
  auto wrong_shift = good;
  wrong_shift[1 + 32] = std::byte{1};
  EXPECT_FALSE(Dequantize(setup, wrong_shift));
}

}  // namespace
}  // namespace kvserve
