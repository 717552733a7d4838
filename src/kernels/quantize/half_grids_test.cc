// Grids of float16: what is written is what is read, and points stay near their ranges.
#include "kernels/quantize/half_grids.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/quantize/uniform_plane.h"

namespace kvserve {
namespace {

struct Written {
  std::vector<float> zero, step;
  std::vector<std::byte> bytes;
};

Written Write(std::uint32_t levels, GridForm form, const std::vector<float>& low,
              const std::vector<float>& high) {
  Written written{std::vector<float>(low.size()), std::vector<float>(low.size()), {}};
  ByteWriter out(written.bytes);
  WriteHalfGrids(levels, form, low, high, written.zero, written.step, out);
  EXPECT_EQ(written.bytes.size(), low.size() * HalfGridBytes(form));
  return written;
}

TEST(HalfGrids, ReaderGetsTheGridsOfTheWriter) {
  for (const GridForm form : {GridForm::kSpan, GridForm::kSymmetric}) {
    for (const std::uint32_t levels : {2U, 3U, 16U, 256U}) {
      const auto written =
          Write(levels, form, {-3.0F, 0.1F, -0.0F, 8191.0F}, {4.0F, 0.1F, 0.0F, 16383.0F});
      ByteReader in(written.bytes);
      std::vector<float> zero(4);
      std::vector<float> step(4);
      ASSERT_TRUE(ReadHalfGrids(levels, form, in, zero, step));
      EXPECT_EQ(zero, written.zero);
      EXPECT_EQ(step, written.step);
      EXPECT_EQ(in.remaining(), 0U);
    }
  }
}

TEST(HalfGrids, SpanTheirRange) {
  const auto written = Write(5, GridForm::kSpan, {-1.0F}, {3.0F});
  EXPECT_EQ(written.zero[0], -1.0F);
  EXPECT_EQ(written.step[0], 1.0F);
  const auto symmetric = Write(5, GridForm::kSymmetric, {-1.0F}, {3.0F});
  EXPECT_EQ(symmetric.zero[0], -3.0F);
  EXPECT_EQ(symmetric.step[0], 1.5F);
}

TEST(HalfGrids, ShiftBringsPlanesIntoTheirRange) {
  EXPECT_EQ(HalfGridShift(0.0F), 0);
  EXPECT_EQ(HalfGridShift(0x1p-10F), 0);
  EXPECT_EQ(HalfGridShift(16383.0F), 0);
  EXPECT_EQ(HalfGridShift(16384.0F), -1);
  EXPECT_EQ(HalfGridShift(std::numeric_limits<float>::max()), kLeastHalfGridShift);
  EXPECT_EQ(HalfGridShift(std::numeric_limits<float>::denorm_min()), kLargestHalfGridShift);
}

TEST(HalfGrids, RefusesWhatIsNoGrid) {
  const auto read = [](std::uint16_t zero_bits, std::uint16_t step_bits) {
    std::vector<std::byte> bytes;
    ByteWriter out(bytes);
    out.Put(zero_bits);
    out.Put(step_bits);
    ByteReader in(bytes);
    float zero = 0.0F;
    float step = 0.0F;
    return ReadHalfGrids(4, GridForm::kSpan, in, {&zero, 1}, {&step, 1}).has_value();
  };
  EXPECT_TRUE(read(0xBC00, 0x3C00));
  EXPECT_FALSE(read(0x7C00, 0x3C00));  // infinity
  EXPECT_FALSE(read(0x3C00, 0x7E00));  // not a number
  EXPECT_FALSE(read(0x3C00, 0xBC00));  // negative step
}

// Whole planes: any magnitude comes back within half a step and what float16 is off.
TEST(HalfGrids, PlanesOfAnyMagnitudeRoundTrip) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const float magnitude : {1e-40F, 1e-30F, 1e-4F, 1.0F, 1e5F, 1e37F}) {
    UniformOptions options;
    options.half = true;
    options.block = 4;
    constexpr std::size_t kRows = 10;
    constexpr std::size_t kColumns = 24;
    std::vector<float> values(kRows * kColumns);
    for (float& value : values) value = magnitude * normal(random);
    Arena arena;
    UniformPlane encoder(options, kRows, 2, 12, arena);
    encoder.BeginEncoding();
    encoder.Observe(0, values);
    std::vector<std::byte> bytes;
    ByteWriter side(bytes);
    encoder.Finish(side);
    EXPECT_EQ(bytes.size(), 1 + 3 * kColumns * 4);
    std::vector<std::uint8_t> symbols(values.size());
    encoder.Quantize(0, values, symbols);
    UniformPlane decoder(options, kRows, 2, 12, arena);
    ByteReader in(bytes);
    ASSERT_TRUE(decoder.Open(in));
    std::vector<float> decoded(values.size());
    decoder.Dequantize(0, symbols, decoded);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], decoded[i], magnitude * 8 / 15 / 2) << magnitude;
    }
  }
}

}  // namespace
}  // namespace kvserve
