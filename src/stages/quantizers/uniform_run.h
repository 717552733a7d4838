// Runs one plane through the uniform quantizer, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "pipeline/settings.h"
#include "pipeline/stage.h"

namespace kvserve {

const StageEntry& UniformStage();

struct PlaneSetup {
  std::uint32_t tokens = 1, heads = 1, dim = 1;
  std::uint32_t first_token = 16;
  PlaneKind kind = PlaneKind::kKey;
  DType dtype = DType::kFloat16;
  double levels = 16, axis = 0, group = 64, raw_first = 1;
  double range = 0, step = 1, dead_zone = 0, reconstruct = 0;
  [[nodiscard]] std::string text() const {
    return "tokens " + std::to_string(tokens) + " heads " + std::to_string(heads) + " dim " +
           std::to_string(dim) + " levels " + std::to_string(levels) + " axis " +
           std::to_string(axis) + " group " + std::to_string(group) + " range " +
           std::to_string(range) + " dead_zone " + std::to_string(dead_zone) + " reconstruct " +
           std::to_string(reconstruct);
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

  static Error MakeError(const PlaneSetup& setup) {
    const auto made = TryMake(setup);
    return made ? Error{} : made.error();
  }

  [[nodiscard]] std::size_t arena_bytes() const { return arena_.capacity(); }

  // The same through tiles of rows.
  Decoded RunTiled(const PlaneSetup& setup, const std::vector<float>& values, std::uint32_t tile) {
    const auto quantizer = Make(setup);
    Plan(setup, *quantizer);
    const RowQuantizer* rows = quantizer->rows();
    const PlaneShape shape{setup.tokens, setup.heads, setup.dim};
    const std::size_t columns = shape.columns();
    const std::uint32_t raw = setup.tokens - symbols_.tokens;
    Decoded result;
    result.symbols.assign(symbols_.count(), 0xEE);
    result.values.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
    const auto for_each_tile = [&](const auto& visit) {
      for (std::uint32_t first = 0; first < setup.tokens; first += tile) {
        const std::uint32_t count = std::min(tile, setup.tokens - first);
        const std::uint32_t skipped = first == 0 ? raw : 0;
        visit(first, count,
              std::span(result.symbols)
                  .subspan((first + skipped - raw) * columns, (count - skipped) * columns));
      }
    };
    ByteWriter writer(result.side);
    PlaneState* state = rows->Begin(plane_, shape);
    for_each_tile([&](std::uint32_t first, std::uint32_t count, auto) {
      rows->Observe(state, first, {&values[first * columns], count, setup.heads, setup.dim});
    });
    EXPECT_TRUE(rows->Finish(state, writer));
    for_each_tile([&](std::uint32_t first, std::uint32_t count, auto symbols) {
      rows->QuantizeRows(state, first, {&values[first * columns], count, setup.heads, setup.dim},
                         symbols);
    });
    ByteReader reader(result.side);
    const auto opened = rows->Open(plane_, shape, symbols_, reader);
    EXPECT_TRUE(opened.has_value());
    EXPECT_EQ(reader.remaining(), 0U);
    for_each_tile([&](std::uint32_t first, std::uint32_t count, auto symbols) {
      rows->DequantizeRows(*opened, first, symbols,
                           {&result.values[first * columns], count, setup.heads, setup.dim});
    });
    return result;
  }

 private:
  static Result<std::unique_ptr<Quantizer>> TryMake(const PlaneSetup& setup) {
    const std::vector<ParameterValue> parameters = {
        {1, setup.levels},     {2, setup.levels},       {3, setup.axis},
        {4, setup.axis},       {5, setup.group},        {6, setup.group},
        {7, setup.raw_first},  {8, setup.range},        {9, setup.range},
        {10, setup.step},      {11, setup.step},        {12, setup.dead_zone},
        {13, setup.dead_zone}, {14, setup.reconstruct}, {15, setup.reconstruct}};
    const auto settings = CheckedSettings(*UniformStage().info, UniformStage().info->version,
                                          parameters, ErrorCode::kInternal);
    return UniformStage().make_quantizer(settings.value());
  }

  static std::unique_ptr<Quantizer> Make(const PlaneSetup& setup) { return TryMake(setup).value(); }

  void Plan(const PlaneSetup& setup, const Quantizer& quantizer) {
    geometry_.dtype = setup.dtype;
    frame_.geometry = &geometry_;
    plane_.frame = &frame_;
    arena_.Reset();
    plane_.arena = &arena_;
    plane_.kind = setup.kind;
    plane_.tokens = {setup.first_token, setup.first_token + setup.tokens};
    symbols_ = {};
    symbols_.tokens = setup.tokens;
    ASSERT_TRUE(quantizer.Plan(plane_, setup.dtype, setup.heads, setup.dim, symbols_));
    EXPECT_EQ(symbols_.alphabet, setup.levels);
  }

  KvGeometry geometry_;
  Arena arena_;
  FrameContext frame_;
  PlaneContext plane_;
  SymbolPlane symbols_;
};

// Which range a value belongs to, told independently of the stage.
inline std::size_t RangeOf(const PlaneSetup& setup, std::size_t index) {
  const std::size_t columns = std::size_t{setup.heads} * setup.dim;
  const std::size_t row = index / columns;
  const std::size_t column = index % columns;
  if (setup.axis == 0) return column;
  if (setup.axis == 1) return row;
  if (setup.axis == 3) return 0;
  const auto group = static_cast<std::size_t>(setup.group);
  const std::size_t groups = (setup.dim + group - 1) / group;
  return (index / setup.dim) * groups + (column % setup.dim) / group;
}

// Every value is within half of the widest step that the format may choose for its range.
inline void ExpectBound(const PlaneSetup& setup, const std::vector<float>& x,
                        const std::vector<float>& y, std::size_t first) {
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

inline std::vector<float> Random(const PlaneSetup& setup, std::mt19937& random) {
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

}  // namespace kvserve
