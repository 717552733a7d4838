#include "pipeline/frame_queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "pipeline/profile_text.h"
#include "pipeline/reference_executor.h"
#include "pipeline/testing/chunk.h"
#include "pipeline/testing/toy_stages.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

class Asking final : public Selector {
 public:
  Status Weigh(const FrameContext& /*frame*/, const ConstKvView& /*view*/,
               SelectorMemory* /*memory*/,
               std::span<std::vector<float>> /*weights*/) const override {
    return {};
  }
  [[nodiscard]] bool needs_queries() const override { return true; }
};

constexpr StageInfo kAsking{.id = 0x0102, .name = "asking", .kind = StageKind::kSelector};

class FrameQueries : public ::testing::Test {
 protected:
  FrameQueries()
      : geometry_(testing::MakeGeometry(DType::kFloat32, {{2, 4, 4}, {1, 8, 0}})),
        chunk_(testing::MakeChunk(geometry_, {8, 12})) {
    table_.assign(testing::ToyStages().begin(), testing::ToyStages().end());
    table_.push_back({.info = &kAsking,
                      .make_selector = [](const Settings&) -> Result<std::unique_ptr<Selector>> {
                        return std::make_unique<Asking>();
                      }});
    values_.assign(3 * 4 * 8, 0.5F);
    queries_.tokens = {13, 16};
    queries_.layers = {{0, 4, 4, std::span(values_).first(48)},
                       {1, 1, 8, std::span(values_).first(24)}};
  }

  Status Check(const char* text, const QueryView* queries) {
    const auto profile = ParseProfileText(text, table_).value();
    const Chain chain = Chain::Create(profile.stages, table_, DType::kFloat32, Device::kHost,
                                      ProfileOrigin::kCaller)
                            .value();
    return CheckQueries(chain, std::as_const(chunk_).view(), queries);
  }
  std::string Refused(const QueryView* queries) {
    const auto status = Check("asking|classes|none", queries);
    EXPECT_FALSE(status);
    if (status) return "";
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    return status.error().message;
  }

  KvGeometry geometry_;
  KvBuffer chunk_;
  std::vector<StageEntry> table_;
  std::vector<float> values_;
  QueryView queries_;
};

TEST_F(FrameQueries, AreWantedOnlyByASelectorThatNeedsThem) {
  EXPECT_TRUE(Check("weigh|classes|none", nullptr));
  EXPECT_TRUE(Check("asking|classes|none", &queries_));
  EXPECT_THAT(Refused(nullptr), HasSubstr("'asking'"));
}

// As tools do that go past FrameEncoder.
TEST_F(FrameQueries, AreWantedByTheReferenceExecutorToo) {
  const Chain chain = Chain::Create(ParseProfileText("asking|classes|none", table_)->stages, table_,
                                    DType::kFloat32, Device::kHost, ProfileOrigin::kCaller)
                          .value();
  FrameContext frame{.geometry = &geometry_, .tokens = {8, 12}};
  const ConstKvView view = std::as_const(chunk_).view();
  CodedSections sections;
  const auto refused = EncodePlanes(chain, view, frame, sections);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("'asking'"));
  frame.queries = &queries_;
  EXPECT_TRUE(EncodePlanes(chain, view, frame, sections));
}

TEST_F(FrameQueries, HaveTheShapesOfTheKeys) {
  QueryView other = queries_;
  other.layers[0].heads = 3;
  EXPECT_THAT(Refused(&other), HasSubstr("layer 0 have 3 heads"));
  other = queries_;
  other.layers[1].dim = 4;
  EXPECT_THAT(Refused(&other), HasSubstr("layer 1 have dim 4"));
  other = queries_;
  other.layers[1].values = std::span(values_).first(23);
  EXPECT_THAT(Refused(&other), HasSubstr("layer 1 have 23 values"));
  other = queries_;
  other.layers.pop_back();
  EXPECT_THAT(Refused(&other), HasSubstr("layer 1 were not given"));
  other = queries_;
  other.tokens = {13, 13};
  EXPECT_THAT(Refused(&other), HasSubstr("none were given"));
  other.tokens = {kMaxTokens - 2, kMaxTokens + 1};
  EXPECT_THAT(Refused(&other), HasSubstr("out of range"));
  other.tokens = {16, 13};
  EXPECT_THAT(Refused(&other), HasSubstr("out of range"));
  values_[47] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Refused(&queries_), HasSubstr("layer 0 are not all finite"));
}

}  // namespace
}  // namespace kvserve
