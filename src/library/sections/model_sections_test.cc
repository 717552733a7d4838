// KLT, query statistics, head scores and attention: what is written is read, lookups, and hostile
// sections.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/try.h"
#include "library/calibration_file.h"
#include "library/sections/section.h"
#include "library/testing/sample_calibration.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;
using Bytes = std::vector<std::byte>;
using testing::SampleCalibration;

TEST(ModelSections, EverythingComesBack) {
  const Contents contents = SampleCalibration();
  const auto artefact = ParseCalibration(FormatCalibration(contents).value());
  ASSERT_TRUE(artefact) << artefact.error().message;
  const Contents& read = (*artefact)->contents();
  for (const auto planes : {&Contents::klt_heads, &Contents::klt_joint}) {
    ASSERT_EQ((read.*planes).size(), 8U);
    for (std::size_t p = 0; p < 8; ++p) {
      EXPECT_EQ((read.*planes)[p].columns, (contents.*planes)[p].columns) << p;
      EXPECT_EQ((read.*planes)[p].mean, (contents.*planes)[p].mean) << p;
      EXPECT_EQ((read.*planes)[p].basis, (contents.*planes)[p].basis) << p;
      EXPECT_EQ((read.*planes)[p].variance, (contents.*planes)[p].variance) << p;
    }
  }
  ASSERT_EQ(read.query_statistics.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read.query_statistics[i].heads, contents.query_statistics[i].heads) << i;
    EXPECT_EQ(read.query_statistics[i].mean, contents.query_statistics[i].mean) << i;
    EXPECT_EQ(read.query_statistics[i].covariance, contents.query_statistics[i].covariance) << i;
  }
  EXPECT_EQ(read.head_scores, contents.head_scores);
  const AttentionProfile& attention = read.attention_profile;
  const AttentionProfile& written = contents.attention_profile;
  EXPECT_EQ(attention.horizon, written.horizon);
  EXPECT_EQ(attention.seen, written.seen);
  EXPECT_EQ(attention.ahead, written.ahead);
  EXPECT_EQ(attention.distance, written.distance);
  ASSERT_EQ(attention.planes.size(), 8U);
  for (std::size_t p = 0; p < 8; ++p) {
    EXPECT_EQ(attention.planes[p].level, written.planes[p].level) << p;
    EXPECT_EQ(attention.planes[p].recency, written.planes[p].recency) << p;
  }
}

TEST(ModelSections, FrameExpectationsComeBack) {
  const Contents contents = SampleCalibration();
  const auto artefact = ParseCalibration(FormatCalibration(contents).value()).value();
  const FrameExpectation& read = artefact->contents().frame_expectation;
  EXPECT_EQ(read.frame_tokens, 256U);
  ASSERT_EQ(read.planes.size(), 8U);
  EXPECT_EQ(read.planes[0].energy, 2);
  EXPECT_EQ(read.planes[1].energy_spread, 1);
  EXPECT_EQ(read.planes[1].gain, 0.5F);
  EXPECT_EQ(read.planes[0].gain_spread, 0.25F);
  EXPECT_FALSE(read.in_kind);
}

// In a version of the section of their own: a build that does not know it has no expectation.
TEST(ModelSections, ExpectationsOfTextsOfTheirOwnSaySo) {
  Contents contents = SampleCalibration();
  contents.frame_expectation.in_kind = true;
  const auto artefact = ParseCalibration(FormatCalibration(contents).value()).value();
  const FrameExpectation& read = artefact->contents().frame_expectation;
  EXPECT_TRUE(read.in_kind);
  ASSERT_EQ(read.planes.size(), 8U);
  EXPECT_EQ(read.planes[1].energy_spread, 1);
}

TEST(ModelSections, LookupsFindWhatIsThere) {
  const CalibrationArtefact artefact(SampleCalibration(), {});
  ASSERT_NE(artefact.klt_heads(0, PlaneKind::kKey), nullptr);
  EXPECT_EQ(artefact.klt_heads(0, PlaneKind::kKey)->columns, 4U);
  ASSERT_NE(artefact.klt_joint(0, PlaneKind::kValue), nullptr);
  EXPECT_EQ(artefact.klt_joint(0, PlaneKind::kValue)->columns, 4U);
  EXPECT_EQ(artefact.klt_heads(1, PlaneKind::kKey), nullptr);    // left out
  EXPECT_EQ(artefact.klt_joint(3, PlaneKind::kValue), nullptr);  // a single plane
  EXPECT_EQ(artefact.klt_joint(99, PlaneKind::kKey), nullptr);
  ASSERT_NE(artefact.query_statistics(0), nullptr);
  EXPECT_EQ(artefact.query_statistics(0)->heads, 4U);
  EXPECT_EQ(artefact.query_statistics(2), nullptr);
  EXPECT_EQ(artefact.query_statistics(99), nullptr);
  EXPECT_EQ(artefact.head_scores(0), nullptr);
  ASSERT_NE(artefact.head_scores(1), nullptr);
  EXPECT_EQ(artefact.head_scores(1)->size(), 2U);
  EXPECT_EQ(artefact.head_scores(99), nullptr);
  ASSERT_NE(artefact.attention(0, PlaneKind::kValue), nullptr);
  EXPECT_EQ(artefact.attention(0, PlaneKind::kValue)->recency.size(), 3U);
  EXPECT_EQ(artefact.attention(1, PlaneKind::kKey), nullptr);    // left out
  EXPECT_EQ(artefact.attention(3, PlaneKind::kValue), nullptr);  // a single plane
  EXPECT_EQ(artefact.attention(99, PlaneKind::kKey), nullptr);
  const CalibrationArtefact empty(Contents{}, {});
  EXPECT_EQ(empty.attention(0, PlaneKind::kKey), nullptr);
  EXPECT_EQ(empty.klt_heads(0, PlaneKind::kKey), nullptr);
  EXPECT_EQ(empty.query_statistics(0), nullptr);
  EXPECT_EQ(empty.head_scores(0), nullptr);
}

// Older files, and calibrations from KV files alone.
TEST(ModelSections, MayBeLeftOut) {
  Contents contents = SampleCalibration();
  contents.klt_heads.clear();
  contents.klt_joint.clear();
  contents.query_statistics.clear();
  contents.head_scores.clear();
  contents.attention_profile = {};
  const auto artefact = ParseCalibration(FormatCalibration(contents).value());
  ASSERT_TRUE(artefact) << artefact.error().message;
  EXPECT_EQ((*artefact)->klt_joint(0, PlaneKind::kKey), nullptr);
}

template <typename Change>
void ExpectNotWritten(Change change, const std::string& says) {
  Contents contents = SampleCalibration();
  change(contents);
  const auto bytes = FormatCalibration(contents);
  ASSERT_FALSE(bytes) << says;
  EXPECT_EQ(bytes.error().code, ErrorCode::kInvalidArgument) << bytes.error().message;
  EXPECT_NE(bytes.error().message.find(says), std::string::npos) << bytes.error().message;
}

TEST(ModelSections, WhatNoReaderWouldTakeIsNotWritten) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  ExpectNotWritten([](Contents& c) { c.klt_heads.pop_back(); }, "klt_heads: there is no plane");
  ExpectNotWritten([](Contents& c) { c.klt_heads[0].mean[1] = kNan; }, "layer 0 K: a mean");
  ExpectNotWritten([](Contents& c) { c.klt_heads[1].mean.pop_back(); }, "layer 0 V: sizes");
  ExpectNotWritten([](Contents& c) { c.klt_joint[0].columns = 4; }, "klt_joint: layer 0 K: sizes");
  ExpectNotWritten([](Contents& c) { c.klt_joint[0].variance[2] = -1; }, "component 2");
  ExpectNotWritten([](Contents& c) { c.klt_joint[0].variance[2] = 9; }, "component 2");
  ExpectNotWritten([](Contents& c) { c.klt_joint[0].variance[0] = INFINITY; }, "component 0");
  ExpectNotWritten([](Contents& c) { c.klt_joint[0].basis[9] += 0.5F; }, "row 1 of the basis");
  ExpectNotWritten([](Contents& c) { c.klt_joint[0].basis[9] = kNan; }, "row 1 of the basis");
  ExpectNotWritten([](Contents& c) { c.query_statistics[0].heads = 3; }, "layer 0: 3 query heads");
  ExpectNotWritten([](Contents& c) { c.query_statistics[0].mean[0] = kNan; }, "not finite");
  ExpectNotWritten([](Contents& c) { c.query_statistics[1].covariance[1] += 1; }, "not symmetric");
  ExpectNotWritten([](Contents& c) { c.query_statistics[1].covariance[0] = -1; }, "is negative");
  ExpectNotWritten([](Contents& c) { c.query_statistics[1].mean.pop_back(); }, "layer 1: sizes");
  ExpectNotWritten([](Contents& c) { c.head_scores[2][1] = 1.5F; }, "layer 2: score of head 1");
  ExpectNotWritten([](Contents& c) { c.head_scores[2][1] = kNan; }, "layer 2: score of head 1");
  ExpectNotWritten([](Contents& c) { c.head_scores[2].pop_back(); }, "1 scores for 2 KV heads");
  const auto attention = [](auto change, const std::string& says) {
    ExpectNotWritten([&](Contents& c) { change(c.attention_profile); }, says);
  };
  attention([](AttentionProfile& a) { a.planes.pop_back(); }, "there is no plane");
  ExpectNotWritten([](Contents& c) { c.frame_expectation.planes.pop_back(); }, "not two planes");
  ExpectNotWritten([](Contents& c) { c.frame_expectation.frame_tokens = 0; }, "frames of 0 tokens");
  ExpectNotWritten([](Contents& c) { c.frame_expectation.planes[1].gain = kNan; }, "not finite");
  ExpectNotWritten([](Contents& c) { c.frame_expectation.planes[2].energy_spread = -1; },
                   "layer 1 K: a spread is negative");
  attention([](AttentionProfile& a) { a.seen.clear(); }, "seen: there are 0 knots");
  attention([](AttentionProfile& a) { a.seen[1] = a.seen[0]; }, "seen: knots do not ascend");
  attention([](AttentionProfile& a) { a.seen[0] = 0; }, "seen: knots begin with none");
  attention([](AttentionProfile& a) { a.ahead[0] = 1; }, "ahead: knots do not begin with 0");
  attention([](AttentionProfile& a) { a.distance[2] = kMaxTokens + 1; }, "distance: knots");
  attention([](AttentionProfile& a) { a.horizon = 0; }, "horizon");
  attention([](AttentionProfile& a) { a.planes[1].level.pop_back(); }, "layer 0 V: sizes");
  attention([](AttentionProfile& a) { a.planes[1].recency[0] = kNan; }, "not finite");
}

// A section's bytes for a model of one layer of 1 head, K 2, V 1.
Status ReadAs(std::uint8_t kind, const std::function<void(ByteWriter&)>& write) {
  Bytes bytes;
  ByteWriter out(bytes);
  write(out);
  Contents contents;
  contents.geometry.layers = {{.kv_heads = 1, .k_dim = 2, .v_dim = 1}};
  const CalibrationSection& section = *FindCalibrationSection(kind);
  ByteReader in(bytes);
  KVSERVE_TRY(section.read(in, contents));
  if (in.remaining() != 0) return MakeError(ErrorCode::kCorruptData, "bytes left over");
  return section.check(contents);
}

void ExpectRefused(const Status& status, const std::string& says) {
  ASSERT_FALSE(status) << says;
  EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  EXPECT_NE(status.error().message.find(says), std::string::npos) << status.error().message;
}

TEST(ModelSections, HostileKltIsRefused) {
  const auto klt = [](std::uint8_t flag, float corner, float second, std::size_t dropped) {
    return ReadAs(3, [=](ByteWriter& out) {
      out.Put(flag);
      const float values[] = {0, 0, corner, 0, 0, 1, 2, second};  // mean, basis, variance
      for (std::size_t i = 0; i + dropped < 8; ++i) out.Put(values[i]);
      out.Put(std::uint8_t{0});
    });
  };
  EXPECT_TRUE(klt(1, -1, 1, 0));
  ExpectRefused(klt(2, 1, 1, 0), "neither 0 nor 1");
  ExpectRefused(klt(1, 1, 3, 0), "rises");
  ExpectRefused(klt(1, 2, 1, 0), "norm 1");
  ExpectRefused(klt(1, 1, 1, 1), "truncated");
  ExpectRefused(klt(0, 1, 1, 8), "there is no plane");
}

TEST(ModelSections, HostileQueriesAreRefused) {
  const auto queries = [](std::uint64_t heads, float variance, std::size_t dropped) {
    return ReadAs(5, [=](ByteWriter& out) {
      out.PutVarint(heads);
      const float values[] = {0, 0, variance, 0.5F, 1};
      for (std::size_t i = 0; i + dropped < 5; ++i) out.Put(values[i]);
    });
  };
  EXPECT_TRUE(queries(1, 1, 0));
  ExpectRefused(queries(1, -1, 0), "is negative");
  ExpectRefused(queries(1, INFINITY, 0), "not finite");
  ExpectRefused(queries(1, 1, 1), "truncated");
  ExpectRefused(queries(2, 1, 0), "truncated");
  ExpectRefused(queries(4096, 1, 0), "truncated");
  ExpectRefused(queries(4097, 1, 0), "out of range");
  ExpectRefused(queries(std::uint64_t{1} << 40, 1, 0), "out of range");
  ExpectRefused(queries(0, 1, 5), "there is no layer");
}

TEST(ModelSections, HostileScoresAreRefused) {
  const auto scores = [](std::uint8_t flag, float score) {
    return ReadAs(6, [=](ByteWriter& out) {
      out.Put(flag);
      out.Put(score);
    });
  };
  EXPECT_TRUE(scores(1, 0.25F));
  ExpectRefused(scores(1, -0.25F), "outside 0..1");
  ExpectRefused(scores(3, 0.25F), "neither 0 nor 1");
  ExpectRefused(scores(0, 0.25F), "left over");
}

TEST(ModelSections, HostileAttentionIsRefused) {
  const auto attention = [](std::uint8_t knots, std::uint32_t first, std::uint8_t flag,
                            std::size_t dropped) {
    return ReadAs(10, [=](ByteWriter& out) {
      out.Put(std::uint32_t{384});
      for (const std::uint32_t knot : {64U, 0U, 16U}) {
        out.Put(knots);
        out.Put(knot + first);
      }
      for (const std::uint8_t present : {flag, std::uint8_t{0}}) {
        out.Put(present);
        for (std::size_t i = 0; present != 0 && i + dropped < 2; ++i) out.Put(1.0F);
      }
    });
  };
  EXPECT_TRUE(attention(1, 0, 1, 0));
  ExpectRefused(attention(1, 5, 1, 0), "do not begin with 0");
  ExpectRefused(attention(1, kMaxTokens, 1, 0), "range of tokens");
  ExpectRefused(attention(1, 0, 2, 0), "neither 0 nor 1");
  ExpectRefused(attention(1, 0, 0, 0), "there is no plane");
  ExpectRefused(attention(1, 0, 1, 1), "truncated");
  ExpectRefused(attention(255, 0, 1, 0), "truncated");
}

}  // namespace
}  // namespace kvserve
