#include "pipeline/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/profile_text.h"
#include "pipeline/settings.h"
#include "pipeline/testing/toy_stages.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

std::vector<StageSpec> Stages(std::string_view text) {
  return ParseProfileText(text, testing::ToyStages()).value().stages;
}

Result<Chain> Create(const std::vector<StageSpec>& stages,
                     ProfileOrigin origin = ProfileOrigin::kCaller, DType dtype = DType::kFloat16,
                     Device device = Device::kHost) {
  return Chain::Create(stages, testing::ToyStages(), dtype, device, origin);
}

void ExpectRefused(const std::vector<StageSpec>& stages, ErrorCode from_caller,
                   ErrorCode from_frame, const char* message) {
  for (const auto& [origin, code] : {std::pair(ProfileOrigin::kCaller, from_caller),
                                     std::pair(ProfileOrigin::kFrame, from_frame)}) {
    const auto chain = Create(stages, origin);
    ASSERT_FALSE(chain.has_value()) << message;
    EXPECT_EQ(chain.error().code, code) << chain.error().message;
    EXPECT_THAT(chain.error().message, HasSubstr(message));
  }
}

void ExpectFaulty(const std::vector<StageSpec>& stages, const char* message) {
  ExpectRefused(stages, ErrorCode::kInvalidArgument, ErrorCode::kCorruptData, message);
}

void ExpectUnsupported(const std::vector<StageSpec>& stages, const char* message) {
  ExpectRefused(stages, ErrorCode::kUnsupported, ErrorCode::kUnsupported, message);
}

TEST(Chain, HoldsTheStagesByKind) {
  const auto chain = Create(Stages("weigh|scale|predict|classes|context")).value();
  EXPECT_EQ(chain.selectors().size(), 1U);
  ASSERT_EQ(chain.transforms().size(), 2U);
  EXPECT_EQ(chain.transforms()[1].info->name, "predict");
  EXPECT_EQ(chain.quantizer().info->name, "classes");
  EXPECT_EQ(chain.codec().info->name, "context");
  EXPECT_FALSE(chain.native());
}

TEST(Chain, IsLosslessOnlyWhenEveryStageIs) {
  EXPECT_TRUE(Create(Stages("none")).value().lossless());
  EXPECT_TRUE(Create(Stages("lossless")).value().lossless());
  EXPECT_FALSE(Create(Stages("classes|rans")).value().lossless());
  EXPECT_FALSE(Create(Stages("scale|classes")).value().lossless());
}

TEST(Chain, RefusesAWrongOrder) {
  auto stages = Stages("scale|classes|rans");
  std::swap(stages[0], stages[1]);
  ExpectFaulty(stages, "transform 'scale' cannot follow a quantizer");
  ExpectFaulty({}, "one quantizer and one codec");
  stages = Stages("classes");
  ExpectFaulty({stages[0]}, "one quantizer and one codec");
  ExpectFaulty({stages[1]}, "one quantizer and one codec");
  ExpectFaulty({stages[0], stages[1], stages[1]}, "codec 'none' cannot follow a codec");
}

TEST(Chain, RefusesATransformBeforeANativeQuantizer) {
  ExpectFaulty(Stages("scale|lossless"), "transform 'scale' cannot come before it");
  ExpectFaulty(Stages("scale|rans"), "quantizer 'none' keeps the cache's own bits");
}

TEST(Chain, RefusesUnknownStagesAndVersions) {
  auto stages = Stages("scale|classes");
  stages[0].id = 0x02FF;
  ExpectUnsupported(stages, "stage 0x02ff is not in this build");
  stages = Stages("predict|classes");
  stages[0].version = 4;
  const auto newer = Create(stages, ProfileOrigin::kFrame);
  ASSERT_FALSE(newer.has_value());
  EXPECT_EQ(newer.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(newer.error().message, HasSubstr("this build has versions 2 to 3"));
  stages[0].version = 2;  // is still read, and no longer written
  EXPECT_TRUE(Create(stages, ProfileOrigin::kFrame).has_value());
  const auto older = Create(stages, ProfileOrigin::kCaller);
  ASSERT_FALSE(older.has_value());
  EXPECT_THAT(older.error().message, HasSubstr("predict version 2 is not supported; this build has "
                                               "version 3"));
}

TEST(Chain, RefusesDevicesAndDTypesThatStagesDoNotRunOn) {
  const auto cuda = Create(Stages("none"), ProfileOrigin::kCaller, DType::kFloat16, Device::kCuda);
  ASSERT_FALSE(cuda.has_value());
  EXPECT_EQ(cuda.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(cuda.error().message, HasSubstr("stage none does not run on CUDA"));
  const auto unknown = Create(Stages("none"), ProfileOrigin::kFrame, static_cast<DType>(9));
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
}

TEST(Chain, OpaqueBytesAreForNativeQuantizersOnly) {
  EXPECT_TRUE(Create(Stages("none"), ProfileOrigin::kCaller, DType::kUint8).has_value());
  EXPECT_TRUE(Create(Stages("classes"), ProfileOrigin::kCaller, DType::kFloat8E5M2).has_value());
  for (const auto origin : {ProfileOrigin::kCaller, ProfileOrigin::kFrame}) {
    const auto real = Create(Stages("classes"), origin, DType::kUint8);
    ASSERT_FALSE(real.has_value());
    EXPECT_EQ(real.error().code, origin == ProfileOrigin::kCaller ? ErrorCode::kInvalidArgument
                                                                  : ErrorCode::kCorruptData);
    EXPECT_THAT(real.error().message, HasSubstr("uint8 is opaque bytes"));
  }
}

// A decoder gets its settings from bytes: each way of being wrong is refused by name.
TEST(Chain, RefusesParametersOutsideTheSchema) {
  const auto with = [](std::vector<ParameterValue> values) {
    auto stages = Stages("classes");
    stages[0].parameters = std::move(values);
    return stages;
  };
  ExpectFaulty(with({}), "parameter step (1) is missing");
  ExpectFaulty(with({{1, 0.5}, {2, 0}}), "parameter clip (3) is missing");
  ExpectFaulty(with({{1, 0.5}, {2, 0}, {3, 1}, {4, 1}}), "4 parameters where version 1 has 3");
  ExpectFaulty(with({{1, 0.5}, {3, 0}, {2, 1}}), "parameter id 3 where mode (2)");
  ExpectFaulty(with({{1, 0.5}, {2, 0}, {2, 1}}), "parameter id 2 where clip (3)");
  ExpectFaulty(with({{1, 0.0}, {2, 0}, {3, 1}}), "step=0 should be in");
  ExpectFaulty(with({{1, std::nan("")}, {2, 0}, {3, 1}}), "step=nan");
  ExpectFaulty(with({{1, HUGE_VAL}, {2, 0}, {3, 1}}), "step=inf");
  ExpectFaulty(with({{1, 0.5}, {2, 2}, {3, 1}}), "mode=2 should be one of midpoint, mean");
  ExpectFaulty(with({{1, 0.5}, {2, -1}, {3, 1}}), "mode=-1");
  ExpectFaulty(with({{1, 0.5}, {2, 0}, {3, 1.5}}), "clip=1.5 should be an integer");
  ExpectFaulty(with({{1, 0.5}, {2, 0}, {3, 127}}), "clip=127");
}

TEST(Settings, GiveKAndVTheirOwnValues) {
  const StageEntry& scale = testing::ToyStages()[1];
  const std::vector<ParameterValue> values = {{1, 4.0}, {2, 8.0}};
  const auto settings = CheckedSettings(*scale.info, values, ErrorCode::kInvalidArgument).value();
  EXPECT_EQ(settings.value(1, PlaneKind::kKey), 4.0);
  EXPECT_EQ(settings.value(1, PlaneKind::kValue), 8.0);
  const StageEntry& classes = testing::ToyStages()[5];
  const auto defaults =
      CheckedSettings(*classes.info, DefaultValues(*classes.info), ErrorCode::kInternal).value();
  EXPECT_EQ(defaults.integer(3, PlaneKind::kValue), 126U);  // not per plane: one value for both
}

}  // namespace
}  // namespace kvserve
