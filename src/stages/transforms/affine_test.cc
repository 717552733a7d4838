#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/settings.h"
#include "pipeline/stage.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {

const StageEntry& AffineStage();

namespace {

using ::testing::HasSubstr;

struct Case {
  Arena arena;
  KvGeometry geometry = testing::MakeGeometry(DType::kFloat16, {{2, 8, 8}});
  FrameContext frame;
  PlaneContext plane;

  explicit Case(TokenRange tokens) {
    frame.geometry = &geometry;
    plane.frame = &frame;
    plane.tokens = tokens;
    plane.arena = &arena;
  }
};

std::unique_ptr<Transform> Make(double source, double center, double scale) {
  const std::vector<ParameterValue> values = {
      {1, source}, {2, center}, {3, center}, {4, scale}, {5, scale}};
  const auto settings = CheckedSettings(*AffineStage().info, values, ErrorCode::kInternal);
  return AffineStage().make_transform(settings.value()).value();
}

std::vector<float> Rows(std::size_t rows) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(rows * 16);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto column = static_cast<float>(i % 16);
    values[i] = 100.0F * column + std::exp2(column / 4.0F) * normal(random);
  }
  return values;
}

TEST(Affine, LeavesChannelsCenteredAndOfUnitScale) {
  Case test({5, 105});
  auto values = Rows(100);
  const auto before = values;
  std::vector<std::byte> side;
  ByteWriter writer(side);
  ASSERT_TRUE(Make(0, 1, 1)->Forward(test.plane, {values.data(), 100, 2, 8}, writer));
  for (std::size_t c = 0; c < 16; ++c) {
    double sum = 0.0, squares = 0.0;
    for (std::size_t at = c; at < values.size(); at += 16) {
      sum += values[at];
      squares += double{values[at]} * values[at];
    }
    EXPECT_LT(std::fabs(sum / 100), 0.6) << c;
    EXPECT_GT(squares / 100, 0.95) << c;
    EXPECT_LT(squares / 100, 1.8) << c;
  }
  EXPECT_LE(side.size(), 2 + 3 * 16 + 2 + 16U);
  ByteReader reader(side);
  ASSERT_TRUE(Make(0, 1, 1)->Inverse(test.plane, {values.data(), 100, 2, 8}, reader));
  EXPECT_EQ(reader.remaining(), 0U);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], before[i], 2e-4F);
}

TEST(Affine, FirstTokenOfTheRequestDoesNotMoveTheMeans) {
  auto values = Rows(100);
  for (std::size_t c = 0; c < 16; ++c) values[c] = 1e4F;
  auto without = std::vector<float>(values.begin() + 16, values.end());
  Case first({0, 100});
  Case rest({1, 100});
  std::vector<std::byte> side, side_without;
  ByteWriter writer(side), writer_without(side_without);
  ASSERT_TRUE(Make(0, 1, 1)->Forward(first.plane, {values.data(), 100, 2, 8}, writer));
  ASSERT_TRUE(Make(0, 1, 1)->Forward(rest.plane, {without.data(), 99, 2, 8}, writer_without));
  EXPECT_EQ(side, side_without);
  EXPECT_EQ(std::vector<float>(values.begin() + 16, values.end()), without);
  EXPECT_GT(std::fabs(values[0]), 1000.0F);  // transformed like the others
  Case alone({0, 1});
  side.clear();
  std::vector<float> row(16, 3.0F);
  ASSERT_TRUE(Make(0, 1, 1)->Forward(alone.plane, {row.data(), 1, 2, 8}, writer));
  EXPECT_TRUE(side.empty());
  EXPECT_EQ(row, std::vector<float>(16, 3.0F));
}

// Channels that do not vary come back exactly, whatever their magnitude.
TEST(Affine, ConstantChannelsAreExact) {
  for (const float value : {0.0F, 1.0F, -600.25F, 65504.0F, 1e-30F, -3e38F}) {
    Case test({1, 9});
    std::vector<float> values(8 * 16, value);
    std::vector<std::byte> side;
    ByteWriter writer(side);
    ASSERT_TRUE(Make(0, 1, 1)->Forward(test.plane, {values.data(), 8, 2, 8}, writer));
    for (const float difference : values)
      ASSERT_LE(std::fabs(difference), 1e-6F * std::fabs(value));
    std::fill(values.begin(), values.end(), 0.0F);  // what the coarsest quantizer leaves
    ByteReader reader(side);
    ASSERT_TRUE(Make(0, 1, 1)->Inverse(test.plane, {values.data(), 8, 2, 8}, reader));
    for (const float back : values) ASSERT_NEAR(back, value, 1e-6F * std::fabs(value));
  }
}

TEST(Affine, CalibratedStatisticsNeedNoBytesAndWorkByRows) {
  Case test({0, 6});
  test.frame.geometry = &test.geometry;
  const auto artefact = testing::SampleArtefact(test.geometry);
  test.frame.artefact = artefact.get();
  const auto transform = Make(1, 1, 1);
  EXPECT_TRUE(transform->needs_artefact());
  ASSERT_NE(transform->rows(), nullptr);
  EXPECT_EQ(Make(0, 1, 1)->rows(), nullptr);
  auto values = Rows(6);
  const auto before = values;
  std::vector<std::byte> side;
  ByteWriter writer(side);
  ASSERT_TRUE(transform->Forward(test.plane, {values.data(), 6, 2, 8}, writer));
  EXPECT_TRUE(side.empty());
  const auto& statistics = *artefact->statistics(0, PlaneKind::kKey);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t c = i % 16;
    ASSERT_NEAR(values[i], (before[i] - statistics.mean[c]) / statistics.scale[c], 1e-3F);
  }
  auto rows = before;
  const auto state = transform->rows()->Open(test.plane, {6, 2, 8}, Direction::kForward);
  ASSERT_TRUE(state.has_value());
  transform->rows()->ForwardRows(*state, 0, {rows.data(), 4, 2, 8});
  transform->rows()->ForwardRows(*state, 4, {&rows[64], 2, 2, 8});
  EXPECT_EQ(rows, values);
}

// A missing mean is never taken for 0, nor a missing scale for 1.
TEST(Affine, PlaneWithoutStatisticsIsAnErrorThatNamesIt) {
  const KvBuffer cache =
      testing::MakeChunk(testing::MakeGeometry(DType::kFloat16, {{2, 8, 8}, {2, 8, 8}}), {0, 5});
  CalibrationArtefact::Contents contents = testing::SampleArtefact(cache.geometry())->contents();
  contents.statistics[3] = {};
  CodecOptions options;
  options.calibration =
      std::make_shared<const CalibrationArtefact>(std::move(contents), Fingerprint{{1}});
  std::vector<std::byte> frame;
  const Status status =
      EncodeFrame(cache.view(), ParseProfile("affine:source=calibrated|uniform|none").value(), {},
                  frame, nullptr, options);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
  EXPECT_THAT(status.error().message, HasSubstr("layer 1 V"));
  EXPECT_TRUE(EncodeFrame(cache.view(),
                          ParseProfile("affine:source=calibrated,v_center=0|uniform|none").value(),
                          {}, frame, nullptr, options));
}

TEST(Affine, RefusesSideBytesThatCannotBe) {
  Case test({5, 9});
  auto values = Rows(4);
  std::vector<std::byte> side;
  ByteWriter writer(side);
  ASSERT_TRUE(Make(0, 1, 1)->Forward(test.plane, {values.data(), 4, 2, 8}, writer));
  const auto read = [&](const std::vector<std::byte>& bytes) {
    ByteReader reader(bytes);
    const auto status = Make(0, 1, 1)->Inverse(test.plane, {values.data(), 4, 2, 8}, reader);
    return status ? std::optional<ErrorCode>() : status.error().code;
  };
  for (std::size_t length = 0; length < side.size(); ++length) {
    EXPECT_EQ(read({side.begin(), side.begin() + static_cast<std::ptrdiff_t>(length)}),
              ErrorCode::kCorruptData);
  }
  auto exponent = side;
  exponent[1] = std::byte{1};  // 256 and more
  EXPECT_EQ(read(exponent), ErrorCode::kCorruptData);
  auto base = side;
  base[side.size() - 17] = std::byte{0x7F};
  EXPECT_EQ(read(base), ErrorCode::kCorruptData);
  std::vector<std::byte> digits = {side[0], side[1]};
  ByteWriter(digits).PutVarint(1U << 25);  // a mean of 2^24 steps
  digits.insert(digits.end(), 40, std::byte{0});
  EXPECT_EQ(read(digits), ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace kvserve
