// Runs one plane of values through a real quantizer, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "pipeline/stage.h"

namespace kvserve::testing {

struct PlaneCase {
  std::uint32_t tokens = 1, heads = 1, dim = 1;
  std::uint32_t first_token = 16;
  PlaneKind kind = PlaneKind::kKey;
  DType dtype = DType::kFloat16;
  [[nodiscard]] PlaneShape shape() const { return {tokens, heads, dim}; }
  [[nodiscard]] std::size_t values() const { return std::size_t{tokens} * heads * dim; }
};

// Failures of the quantizer, and side bytes left over, fail the test.
class PlaneRun {
 public:
  struct Coded {
    std::vector<float> values;  // decoded
    std::vector<std::byte> side;
    std::vector<std::uint8_t> symbols;
  };

  Coded Whole(const Quantizer& quantizer, const PlaneCase& plane,
              const std::vector<float>& values) {
    Coded coded = Planned(quantizer, plane);
    symbols_.symbols = coded.symbols;
    ByteWriter writer(coded.side);
    const ConstRealPlane in{values.data(), plane.tokens, plane.heads, plane.dim};
    EXPECT_TRUE(quantizer.Quantize(context_, in, symbols_, writer));
    for (const auto symbol : coded.symbols) EXPECT_LT(symbol, symbols_.alphabet);
    ByteReader reader(coded.side);
    const auto status = quantizer.Dequantize(
        context_, symbols_, reader, {coded.values.data(), plane.tokens, plane.heads, plane.dim});
    EXPECT_TRUE(status.has_value()) << status.error().message;
    EXPECT_EQ(reader.remaining(), 0U);
    return coded;
  }

  // The same through tiles of rows.
  Coded Tiled(const Quantizer& quantizer, const PlaneCase& plane, const std::vector<float>& values,
              std::uint32_t tile) {
    Coded coded = Planned(quantizer, plane);
    const RowQuantizer& rows = *quantizer.rows();
    const std::size_t columns = plane.shape().columns();
    const std::uint32_t raw = plane.tokens - symbols_.tokens;
    const auto for_each_tile = [&](const auto& visit) {
      for (std::uint32_t first = 0; first < plane.tokens; first += tile) {
        const std::uint32_t count = std::min(tile, plane.tokens - first);
        const std::uint32_t skipped = first == 0 ? raw : 0;
        visit(first, ConstRealPlane{&values[first * columns], count, plane.heads, plane.dim},
              std::span(coded.symbols)
                  .subspan((first + skipped - raw) * columns, (count - skipped) * columns));
      }
    };
    ByteWriter writer(coded.side);
    PlaneState* state = rows.Begin(context_, plane.shape());
    for_each_tile([&](std::uint32_t first, const ConstRealPlane& in, auto) {
      rows.Observe(state, first, in);
    });
    EXPECT_TRUE(rows.Finish(state, writer));
    for_each_tile([&](std::uint32_t first, const ConstRealPlane& in, auto symbols) {
      rows.QuantizeRows(state, first, in, symbols);
    });
    ByteReader reader(coded.side);
    const auto opened = rows.Open(context_, plane.shape(), symbols_, reader);
    EXPECT_TRUE(opened.has_value());
    EXPECT_EQ(reader.remaining(), 0U);
    for_each_tile([&](std::uint32_t first, const ConstRealPlane& in, auto symbols) {
      rows.DequantizeRows(*opened, first, symbols,
                          {&coded.values[first * columns], in.tokens, in.heads, in.dim});
    });
    return coded;
  }

  // Of symbols 0 with these side bytes.
  Status Dequantize(const Quantizer& quantizer, const PlaneCase& plane,
                    std::span<const std::byte> side) {
    Coded coded = Planned(quantizer, plane);
    std::fill(coded.symbols.begin(), coded.symbols.end(), std::uint8_t{0});
    symbols_.symbols = coded.symbols;
    ByteReader reader(side);
    return quantizer.Dequantize(context_, symbols_, reader,
                                {coded.values.data(), plane.tokens, plane.heads, plane.dim});
  }

  [[nodiscard]] std::size_t arena_bytes() const { return arena_.capacity(); }

 private:
  Coded Planned(const Quantizer& quantizer, const PlaneCase& plane) {
    geometry_.dtype = plane.dtype;
    frame_.geometry = &geometry_;
    arena_.Reset();
    context_ = {};
    context_.frame = &frame_;
    context_.arena = &arena_;
    context_.kind = plane.kind;
    context_.tokens = {plane.first_token, plane.first_token + plane.tokens};
    symbols_ = {};
    symbols_.tokens = plane.tokens;
    EXPECT_TRUE(quantizer.Plan(context_, plane.dtype, plane.heads, plane.dim, symbols_));
    Coded coded;
    coded.symbols.assign(symbols_.count(), 0xEE);
    coded.values.assign(plane.values(), std::numeric_limits<float>::quiet_NaN());
    return coded;
  }

  KvGeometry geometry_;
  Arena arena_;
  FrameContext frame_;
  PlaneContext context_;
  SymbolPlane symbols_;
};

}  // namespace kvserve::testing
