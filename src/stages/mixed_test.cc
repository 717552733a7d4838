// What the classes of `mixed` do to a frame: levels by layer, head, K and V, steps by token weight,
// tokens that are left out; by both executors, with every codec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include "kernels/isa/isa_testing.h"
#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/chain.h"
#include "pipeline/plane_order.h"
#include "pipeline/testing/chunk.h"
#include "pipeline/token_classes.h"
#include "stages/testing/frames.h"
#include "stages/testing/weighed.h"

namespace kvserve {
namespace {

using ::testing::AllOf;
using testing::CodeWeighed;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Le;
using testing::MakeChunk;
using testing::MakeGeometry;

using Plane = OrderedPlane<const std::byte>;

// Of one head over some rows: the most different values that share a range.
std::size_t LevelsSeen(const Plane& plane, std::uint32_t head) {
  const auto values = testing::PlaneValues(plane.view);
  const std::size_t columns = std::size_t{plane.view.heads} * plane.view.dim;
  const auto at = [&](std::size_t row, std::size_t d) {
    return values[row * columns + head * plane.view.dim + d];
  };
  std::size_t most = 0;
  if (plane.kind == PlaneKind::kKey) {
    for (std::size_t d = 0; d < plane.view.dim; ++d) {
      std::set<float> seen;
      for (std::size_t row = 0; row < plane.view.tokens; ++row) seen.insert(at(row, d));
      most = std::max(most, seen.size());
    }
  } else {
    for (std::size_t row = 0; row < plane.view.tokens; ++row) {
      std::set<float> seen;
      for (std::size_t d = 0; d < plane.view.dim; ++d) seen.insert(at(row, d));
      most = std::max(most, seen.size());
    }
  }
  return most;
}

KvBuffer Decoded(const std::string& profile, const KvBuffer& chunk) {
  std::vector<std::byte> frame;
  const auto status = testing::EncodeSample(chunk.view(), ParseProfile(profile).value(), frame);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  KvBuffer decoded;
  EXPECT_TRUE(testing::DecodeSample(frame, decoded));
  return decoded;
}

std::set<std::uint32_t> LowHeads(const CalibrationArtefact& artefact, std::uint32_t layer,
                                 std::size_t count) {
  const auto& scores = artefact.contents().head_scores[layer];
  std::vector<std::uint32_t> heads(scores.size());
  for (std::uint32_t h = 0; h < heads.size(); ++h) heads[h] = h;
  std::stable_sort(heads.begin(), heads.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return scores[a] < scores[b]; });
  return {heads.begin(), heads.begin() + static_cast<std::ptrdiff_t>(count)};
}

TEST(MixedQuantizer, HeadsWithTheLowestScoresHaveTheLowLevels) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat32, {{4, 64, 64}, {4, 64, 64}});
  const KvBuffer chunk = MakeChunk(geometry, {64, 264});
  const auto artefact = testing::SampleArtefact(geometry);
  const KvBuffer decoded = Decoded("mixed:levels=32,low_levels=3,low_share=0.5|rans", chunk);
  for (const Plane& plane : CodingOrder(decoded.view())) {
    const auto low = LowHeads(*artefact, plane.layer, 2);
    for (std::uint32_t head = 0; head < 4; ++head) {
      if (low.count(head) > 0) {
        EXPECT_LE(LevelsSeen(plane, head), 3U);
      } else {
        EXPECT_THAT(LevelsSeen(plane, head), AllOf(Gt(8U), Le(32U)));
      }
    }
  }
}

// Granularity layer, head, K and V (G05): in one frame the levels differ by all of them.
TEST(MixedQuantizer, G05LevelsDifferPerLayerHeadAndKv) {
  const KvGeometry geometry =
      MakeGeometry(DType::kFloat32, {{2, 64, 64}, {2, 64, 64}, {2, 64, 64}});
  const KvBuffer chunk = MakeChunk(geometry, {64, 464});
  const auto artefact = testing::SampleArtefact(geometry);
  const KvBuffer decoded = Decoded(
      "mixed:k_levels=16,v_levels=8,k_low_levels=4,v_low_levels=3,low_share=0.5,first_layers=1,"
      "k_first_levels=64,v_first_levels=40,v_last_layers=1,v_last_levels=5|rans",
      chunk);
  // Of [layer][kind][is low].
  const std::size_t expected[3][2][2] = {
      {{64, 64}, {40, 40}}, {{16, 4}, {8, 3}}, {{16, 4}, {5, 5}}};
  for (const Plane& plane : CodingOrder(decoded.view())) {
    const auto low = LowHeads(*artefact, plane.layer, 1);
    for (std::uint32_t head = 0; head < 2; ++head) {
      const std::size_t levels =
          expected[plane.layer][static_cast<std::size_t>(plane.kind)][low.count(head)];
      EXPECT_THAT(LevelsSeen(plane, head), AllOf(Le(levels), Gt(levels / 2)))
          << PlaneName(plane.layer, plane.kind) << " head " << head;
    }
  }
}

TEST(MixedQuantizer, AShareOfTheModelMayDifferPerLayer) {
  const KvGeometry geometry =
      MakeGeometry(DType::kFloat32, {{4, 32, 32}, {4, 32, 32}, {4, 32, 32}});
  const KvBuffer chunk = MakeChunk(geometry, {64, 264});
  const auto artefact = testing::SampleArtefact(geometry);
  const auto& scores = artefact->contents().head_scores;
  std::vector<float> all;
  for (const auto& layer : scores) all.insert(all.end(), layer.begin(), layer.end());
  std::sort(all.begin(), all.end());
  const KvBuffer decoded =
      Decoded("mixed:levels=32,low_levels=3,low_share=0.25,scope=model|bitpack", chunk);
  std::size_t low = 0;
  for (const Plane& plane : CodingOrder(decoded.view())) {
    for (std::uint32_t head = 0; head < 4; ++head) {
      if (LevelsSeen(plane, head) > 3) continue;
      EXPECT_LE(scores[plane.layer][head], all[2]);
      ++low;
    }
  }
  EXPECT_EQ(low, 2 * 3U);  // K and V of a quarter of 12 heads
}

// Half the step of the token's class, over the range of the tokens that are kept.
void ExpectBound(const Plane& before, const Plane& after, const std::vector<float>& weights,
                 double levels, bool raw) {
  const auto x = testing::PlaneValues(before.view);
  const auto y = testing::PlaneValues(after.view);
  const std::size_t columns = std::size_t{before.view.heads} * before.view.dim;
  const bool by_channel = before.kind == PlaneKind::kKey;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / columns;
    if (row == 0 && raw) continue;
    if (weights[row] == 0.0F) {
      EXPECT_EQ(y[i], 0.0F) << "row " << row;
      continue;
    }
    double low = x[i];
    double high = x[i];
    for (std::size_t j = 0; j < x.size(); ++j) {
      const std::size_t other = j / columns;
      if (weights[other] == 0.0F || (other == 0 && raw)) continue;
      if (by_channel ? j % columns != i % columns : other != row) continue;
      low = std::min<double>(low, x[j]);
      high = std::max<double>(high, x[j]);
    }
    const double wanted =
        LevelsOfClass(static_cast<std::uint32_t>(levels), TokenClassOf(weights[row]));
    const double spanned = wanted > levels ? levels - 0.5 : levels - 1;
    const double step = (high - low) / (levels - 1) * 17 / 16 * spanned / (wanted - 1);
    ASSERT_LE(std::fabs(double{x[i]} - y[i]), 0.5001 * step + 1e-5 * std::fabs(x[i]))
        << "row " << row << " weight " << weights[row];
  }
}

TEST(MixedQuantizer, ErrorIsHalfTheStepOfATokensClass) {
  const KvGeometry geometry =
      MakeGeometry(DType::kFloat32, {{2, 24, 16}, {1, 40, 0}, {2, 16, 16, 9}});
  for (const std::string options : {"octaves=0,drop=0.4", "octaves=9", "octaves=3,drop=0.2"}) {
    for (const double levels : {2.0, 3.0, 16.0, 200.0}) {
      for (const std::uint32_t first : {0U, 40U}) {
        const KvBuffer chunk = MakeChunk(geometry, {first, first + 30});
        const std::string chain =
            "given:" + options + "|mixed:levels=" + std::to_string(int(levels)) + "|rans";
        SCOPED_TRACE(chain + " from " + std::to_string(first));
        const auto frame = CodeWeighed(chain, chunk.view());
        const auto before = CodingOrder(chunk.view());
        const auto after = CodingOrder(std::as_const(frame.decoded).view());
        for (std::size_t p = 0; p < before.size(); ++p) {
          const bool raw = before[p].tokens.begin == 0;
          ExpectBound(before[p], after[p], frame.weights[p], levels, raw);
        }
      }
    }
  }
}

TEST(MixedQuantizer, WeighedFramesGoThroughEveryChainAndThread) {
  const KvGeometry geometry =
      MakeGeometry(DType::kBFloat16, {{3, 64, 48}, {3, 64, 48}, {1, 80, 0}, {2, 16, 16, 20}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 90});
  for (const std::string transform :
       {"", "hadamard|", "affine|", "delta:axis=layer|", "delta:group=8|", "affine|hadamard|"}) {
    for (const std::string codec : {"none", "bitpack", "rans", "zstd", "lz4"}) {
      std::string chain = "given:octaves=2,drop=0.3|";
      chain += transform;
      chain += "mixed:low_share=0.5,reconstruct=mean,k_axis=tensor|";
      chain += codec;
      SCOPED_TRACE(chain);
      const auto frame = CodeWeighed(chain, chunk.view(), 3);
      EXPECT_TRUE(frame.partly_dropped);
      const auto planes = CodingOrder(std::as_const(frame.decoded).view());
      for (std::size_t p = 0; p < planes.size(); ++p) {
        const auto values = testing::PlaneValues(planes[p].view);
        const std::size_t columns = std::size_t{planes[p].view.heads} * planes[p].view.dim;
        const std::size_t raw = planes[p].tokens.begin == 0 ? columns : 0;
        for (std::size_t i = raw; i < values.size(); ++i) {
          if (frame.weights[p][i / columns] > 0.0F) continue;
          ASSERT_EQ(values[i], 0.0F);
        }
      }
    }
  }
}

// Nothing of a dropped token is sent: its values change no byte.
TEST(MixedQuantizer, DroppedTokensAreNotSent) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat32, {{2, 32, 32}, {2, 32, 32}});
  KvBuffer chunk = MakeChunk(geometry, {16, 80});
  const std::string chain = "given:octaves=1,drop=0.5,common=true|hadamard|mixed|none";
  const auto before = CodeWeighed(chain, std::as_const(chunk).view());
  for (const auto& plane : CodingOrder(chunk.view())) {
    for (std::uint32_t t = 0; t < plane.view.tokens; ++t) {
      if (before.weights[0][t] == 0.0F) testing::SetValue(plane.view, t, 1, 3, 1e6F);
    }
  }
  const auto after = CodeWeighed(chain, std::as_const(chunk).view());
  EXPECT_EQ(before.side, after.side);
  EXPECT_EQ(before.symbols, after.symbols);
  EXPECT_EQ(before.classes, after.classes);
  const auto kept = std::count(before.dropped.begin(), before.dropped.end(), 0);
  EXPECT_EQ(before.symbols.size(), 4 * 64 * static_cast<std::size_t>(kept));
  EXPECT_FALSE(before.partly_dropped);
  for (std::size_t t = 0; t < 64; ++t) {
    EXPECT_EQ(before.dropped[t] != 0, before.weights[0][t] == 0.0F);
  }
}

TEST(MixedQuantizer, AFrameMayDropEveryToken) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat16, {{2, 32, 32}});
  const KvBuffer chunk = MakeChunk(geometry, {16, 40});
  const auto frame = CodeWeighed("given:drop=1|mixed:low_share=0.5|rans", chunk.view());
  EXPECT_EQ(std::count(frame.dropped.begin(), frame.dropped.end(), 1), 24);
}

// The first token is an attention sink and kept, whatever its weight.
TEST(MixedQuantizer, TheRawFirstTokenIsNeverDropped) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat16, {{2, 32, 32}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 24});
  const auto frame = CodeWeighed("given:drop=1|mixed|rans", chunk.view());
  EXPECT_EQ(frame.dropped[0], 0);
  EXPECT_EQ(std::count(frame.dropped.begin(), frame.dropped.end(), 1), 23);
}

TEST(MixedQuantizer, WeighedFramesAreTheSameOnEveryIsa) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat16, {{3, 80, 64}, {1, 7, 0}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 150});
  const std::string chain =
      "given:octaves=4,drop=0.2|hadamard|mixed:low_share=0.4,reconstruct=mean|rans";
  const auto expected = CodeWeighed(chain, chunk.view());
  ForEachIsa([&] {
    const auto frame = CodeWeighed(chain, chunk.view());
    EXPECT_EQ(frame.side, expected.side);
    EXPECT_EQ(frame.symbols, expected.symbols);
    EXPECT_EQ(testing::Difference(std::as_const(frame.decoded).view(),
                                  std::as_const(expected.decoded).view()),
              "");
  });
}

// With one class of everything the planes are those of `uniform`.
TEST(MixedQuantizer, WithoutClassesItIsUniform) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat16, {{2, 64, 64}, {1, 48, 0}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 100});
  for (const std::string options : {"", ":reconstruct=mean", ":levels=5,axis=tensor,raw_first=0"}) {
    const auto mixed = CodeWeighed("mixed" + options + "|rans", chunk.view());
    const auto uniform = CodeWeighed("uniform" + options + "|rans", chunk.view());
    EXPECT_EQ(mixed.symbols, uniform.symbols) << options;
    EXPECT_EQ(mixed.classes.size(), 0U);
    EXPECT_EQ(mixed.side, uniform.side) << options;
  }
}

// Damaged classes, side bytes and symbols: an error or values, the same by both executors.
TEST(MixedQuantizer, DamagedSectionsAreTheSameToBothExecutors) {
  const KvGeometry geometry = MakeGeometry(DType::kFloat16, {{3, 16, 8}, {2, 24, 0}, {2, 8, 8, 9}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 33});
  const std::string chain =
      "given:octaves=4,drop=0.3|hadamard|mixed:low_share=0.5,k_reconstruct=mean|rans";
  const auto whole = CodeWeighed(chain, chunk.view());
  std::mt19937 random(1);
  std::size_t refused = 0;
  constexpr int kTrials = 600;
  for (int trial = 0; trial < kTrials; ++trial) {
    testing::WeighedFrame damaged;
    damaged.classes = whole.classes;
    damaged.side = whole.side;
    damaged.symbols = whole.symbols;
    auto& section = trial % 3 == 0   ? damaged.classes
                    : trial % 3 == 1 ? damaged.side
                                     : damaged.symbols;
    section[random() % section.size()] ^= static_cast<std::byte>(1U << random() % 8);
    if (trial % 5 == 0) section.resize(random() % section.size());
    KvBuffer plain;
    KvBuffer fast;
    const auto by_reference =
        testing::DecodeWeighed(chain, chunk.view(), damaged, testing::Executor::kReference, plain);
    const auto by_fast =
        testing::DecodeWeighed(chain, chunk.view(), damaged, testing::Executor::kFast, fast);
    ASSERT_EQ(by_reference.has_value(), by_fast.has_value()) << trial;
    if (by_reference) {
      EXPECT_EQ(testing::Difference(std::as_const(plain).view(), std::as_const(fast).view()), "");
      continue;
    }
    ++refused;
    EXPECT_EQ(by_reference.error().code, ErrorCode::kCorruptData);
    EXPECT_EQ(by_fast.error().code, ErrorCode::kCorruptData);
  }
  EXPECT_GT(refused, std::size_t{kTrials} / 4);
}

TEST(MixedQuantizer, OneThatNeedsScoresSaysSo) {
  const auto made = FrameEncoder::Create(ParseProfile("mixed:low_share=0.5|rans").value());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("artefact"));
}

// Selectors are for quantizers that honour weights.
TEST(MixedQuantizer, OthersTakeNoSelector) {
  const auto profile = ParseProfile("uniform|rans").value();
  auto stages = profile.stages;
  stages.insert(stages.begin(), {0x01FF, 1, {{1, 1.0}, {2, 2.0}, {3, 0.0}, {4, 0.0}}});
  for (const auto origin : {ProfileOrigin::kCaller, ProfileOrigin::kFrame}) {
    const auto chain =
        Chain::Create(stages, testing::WeighedStages(), DType::kFloat16, Device::kHost, origin);
    ASSERT_FALSE(chain);
    EXPECT_EQ(chain.error().code, origin == ProfileOrigin::kCaller ? ErrorCode::kInvalidArgument
                                                                   : ErrorCode::kCorruptData);
    EXPECT_THAT(chain.error().message, AllOf(HasSubstr("'given'"), HasSubstr("'uniform'")));
  }
}

}  // namespace
}  // namespace kvserve
