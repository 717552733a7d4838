// The fast executor against its oracle: the same bytes, values and errors, for every kind of stage
// and any number of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "pipeline/fast_decoder.h"
#include "pipeline/fast_encoder.h"
#include "pipeline/plane_order.h"
#include "pipeline/profile_text.h"
#include "pipeline/testing/chunk.h"
#include "pipeline/testing/row_stages.h"

namespace kvserve {
namespace {

using testing::Difference;
using testing::LayerShape;
using testing::MakeChunk;
using testing::MakeGeometry;
using testing::StridedChunk;

// Native, whole planes, rows, feedback, classes and selectors; whole streams and pieces that cut
// planes or join them.
constexpr const char* kChains[] = {
    "none|none",
    "none|pieces:cut=5",
    "none|pieces:cut=1000",
    "scale|classes|none",
    "scale|classes|pieces:cut=9",
    "turn|ranges|none",
    "turn|turn|ranges:lead=1|pieces:cut=3",
    "ranges:lead=20|pieces:cut=1000",
    "turn|scale|ranges|pieces:cut=11",
    "weigh|turn|classes|context",
    "weigh|scale|predict|classes:step=0.02|context",
};

Chain MakeChain(std::string_view text) {
  const auto profile = ParseProfileText(text, testing::RowStages()).value();
  return Chain::Create(profile.stages, testing::RowStages(), DType::kFloat16, Device::kHost,
                       ProfileOrigin::kCaller)
      .value();
}

// What a caller of the fast executor keeps.
struct Bench {
  explicit Bench(unsigned threads) : workers(threads) {}

  FrameContext Frame(const KvGeometry& geometry, TokenRange tokens) {
    FrameContext frame;
    frame.geometry = &geometry;
    frame.tokens = tokens;
    frame.arena = &arena;
    frame.workers = &workers;
    return frame;
  }
  Result<CodedSections> Encode(const Chain& chain, const ConstKvView& view,
                               StageSeconds* seconds = nullptr) {
    CodedSections coded;
    const auto frame = Frame(*view.geometry, view.tokens);
    const auto status = encoder.Encode(chain, view, frame, coded, seconds);
    if (!status) return tl::unexpected(status.error());
    return coded;
  }
  Status Decode(const Chain& chain, const CodedSections& coded, const KvView& out,
                StageSeconds* seconds = nullptr) {
    const auto frame = Frame(*out.geometry, out.tokens);
    return decoder.Decode(
        chain, {coded.classes, coded.side, coded.symbols}, frame, out, [&] { return &out; },
        seconds);
  }

  Workers workers;
  Arena arena;
  FastEncoder encoder;
  FastDecoder decoder;
};

Result<CodedSections> Reference(const Chain& chain, const ConstKvView& view) {
  FrameContext frame;
  frame.geometry = view.geometry;
  frame.tokens = view.tokens;
  CodedSections coded;
  const auto status = EncodePlanes(chain, view, frame, coded);
  if (!status) return tl::unexpected(status.error());
  return coded;
}

Status ReferenceDecode(const Chain& chain, const CodedSections& coded, const KvView& out) {
  FrameContext frame;
  frame.geometry = out.geometry;
  frame.tokens = out.tokens;
  return DecodePlanes(chain, {coded.classes, coded.side, coded.symbols}, frame, out);
}

// Both directions of both executors.
void ExpectSame(Bench& bench, const Chain& chain, const ConstKvView& view) {
  const auto expected = Reference(chain, view);
  const auto coded = bench.Encode(chain, view);
  ASSERT_TRUE(expected.has_value()) << expected.error().message;
  ASSERT_TRUE(coded.has_value()) << coded.error().message;
  EXPECT_EQ(coded->classes, expected->classes);
  EXPECT_EQ(coded->side, expected->side);
  EXPECT_EQ(coded->symbols, expected->symbols);
  const StridedChunk slow(view, testing::Layout::kTokenGaps, false);
  ASSERT_TRUE(ReferenceDecode(chain, *expected, slow.view()).has_value());
  for (const auto layout : testing::kLayouts) {
    const StridedChunk fast(view, layout, false);
    const auto status = bench.Decode(chain, *expected, fast.view());
    ASSERT_TRUE(status.has_value()) << status.error().message;
    EXPECT_EQ(Difference(slow.const_view(), fast.const_view()), "");
  }
}

class EveryKindOfChain : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryKindOfChain, GivesTheBytesAndValuesOfTheReference) {
  const Chain chain = MakeChain(GetParam());
  const std::vector<LayerShape> shapes = {{3, 80, 96}, {1, 64, 0}, {2, 33, 31, 8}, {1, 5000, 7, 2}};
  for (const unsigned threads : {1U, 2U, 3U}) {
    Bench bench(threads);
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
      const KvGeometry geometry = MakeGeometry(dtype, shapes);
      for (const TokenRange tokens : {TokenRange{0, 0}, TokenRange{0, 1}, TokenRange{0, 70},
                                      TokenRange{16, 37}, TokenRange{0, 21}}) {
        SCOPED_TRACE(std::to_string(threads) + " threads, " + std::string(DTypeName(dtype)) + ", " +
                     std::to_string(tokens.begin) + ".." + std::to_string(tokens.end));
        const KvBuffer chunk = MakeChunk(geometry, tokens);
        ExpectSame(bench, chain, chunk.view());
      }
    }
  }
}

TEST_P(EveryKindOfChain, TakesAnyLayout) {
  const Chain chain = MakeChain(GetParam());
  const KvGeometry geometry = MakeGeometry(DType::kBFloat16, {{3, 300, 96}, {1, 64, 0}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 37});
  Bench bench(2);
  const auto expected = bench.Encode(chain, chunk.view()).value();
  for (const auto layout : testing::kLayouts) {
    const StridedChunk strided(chunk.view(), layout);
    EXPECT_EQ(bench.Encode(chain, strided.const_view()).value().symbols, expected.symbols);
    EXPECT_EQ(bench.Encode(chain, strided.const_view()).value().side, expected.side);
  }
}

TEST_P(EveryKindOfChain, NamesTheValueThatIsNotFinite) {
  const Chain chain = MakeChain(GetParam());
  if (chain.native()) return;
  const KvGeometry geometry = MakeGeometry(DType::kFloat32, {{2, 64, 64}, {2, 64, 64}});
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    KvBuffer chunk = MakeChunk(geometry, {5, 105});
    testing::SetValue(chunk.view().layers[1].v, 60, 1, 3, value);
    testing::SetValue(chunk.view().layers[1].v, 61, 0, 3, value);
    testing::SetValue(chunk.view().layers[1].k, 99, 1, 63, value);
    for (const unsigned threads : {1U, 3U}) {
      Bench bench(threads);
      const auto coded = bench.Encode(chain, std::as_const(chunk).view());
      ASSERT_FALSE(coded.has_value());
      const Error expected = Reference(chain, std::as_const(chunk).view()).error();
      EXPECT_EQ(coded.error().code, ErrorCode::kBadInput);
      EXPECT_EQ(coded.error().message, expected.message);
      EXPECT_THAT(expected.message, ::testing::HasSubstr("layer 1 K token 104 head 1 channel 63"));
    }
  }
}

// Damage in any section is found by both, with the same code; after it the same objects still work.
TEST_P(EveryKindOfChain, RefusesWhatTheReferenceRefuses) {
  const Chain chain = MakeChain(GetParam());
  const KvGeometry geometry = MakeGeometry(DType::kFloat16, {{2, 16, 16}, {1, 24, 0}});
  const KvBuffer chunk = MakeChunk(geometry, {0, 30});
  const auto good = Reference(chain, chunk.view()).value();
  Bench bench(2);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    CodedSections bad = good;
    std::vector<std::byte>* const sections[] = {&bad.classes, &bad.side, &bad.symbols};
    auto& section = *sections[random() % 3];
    switch (random() % 3) {
      case 0: section.push_back(std::byte{1}); break;
      case 1:
        section.resize(section.size() - std::min<std::size_t>(section.size(), 1 + random() % 9));
        break;
      default:
        if (section.empty()) continue;
        section[random() % section.size()] ^= static_cast<std::byte>(1U << random() % 8);
    }
    const StridedChunk slow(chunk.view(), testing::Layout::kTokenGaps, false);
    const StridedChunk fast(chunk.view(), testing::Layout::kTokenGaps, false);
    const auto expected = ReferenceDecode(chain, bad, slow.view());
    const auto status = bench.Decode(chain, bad, fast.view());
    ASSERT_EQ(status.has_value(), expected.has_value())
        << (status ? expected.error().message : status.error().message);
    if (status) {
      ASSERT_EQ(Difference(slow.const_view(), fast.const_view()), "");
    } else {
      ASSERT_EQ(status.error().code, expected.error().code) << status.error().message;
    }
  }
  ExpectSame(bench, chain, chunk.view());
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKindOfChain, ::testing::ValuesIn(kChains));

TEST(FastExecutor, NamesTheTransformThatOverflows) {
  const Chain chain = MakeChain("turn|turn:overflow=true|ranges|none");
  const KvBuffer chunk = MakeChunk(MakeGeometry(DType::kFloat16, {{1, 3000, 64}}), {0, 10});
  Bench bench(1);
  const Error error = bench.Encode(chain, chunk.view()).error();
  EXPECT_EQ(error.message, Reference(chain, chunk.view()).error().message);
  EXPECT_THAT(error.message, ::testing::HasSubstr("layer 0 K token 3 head 0 channel 0: 'turn'"));
}

TEST(FastExecutor, ReportsTheTimeOfEveryStage) {
  const Chain chain = MakeChain("weigh|turn|ranges|pieces");
  KvBuffer chunk = MakeChunk(MakeGeometry(DType::kFloat16, {{2, 64, 64}}), {0, 50});
  Bench bench(2);
  StageSeconds seconds;
  const auto coded = bench.Encode(chain, std::as_const(chunk).view(), &seconds).value();
  EXPECT_EQ(seconds.size(), 5U);
  for (const char* name : {"weigh", "turn", "ranges", "pieces", "convert"}) {
    EXPECT_GT(seconds[name], 0.0) << name;
  }
  StageSeconds decode_seconds;
  ASSERT_TRUE(bench.Decode(chain, coded, chunk.view(), &decode_seconds));
  for (const char* name : {"turn", "ranges", "pieces", "convert"}) {
    EXPECT_GT(decode_seconds[name], 0.0) << name;
  }
}

TEST(PieceItems, RefusePiecesThatDoNotCoverTheSymbols) {
  std::vector<SymbolPlane> planes(4);
  for (SymbolPlane& plane : planes) {
    plane.tokens = 10;
    plane.columns = 2;
  }
  planes[1].tokens = 0;
  std::vector<DecodeItem> items;
  const auto covers = [&](std::vector<SymbolPiece> pieces) {
    return ItemsOfPieces(pieces, planes, items).has_value();
  };
  EXPECT_TRUE(covers({{0, 4, 0, 0}}));
  EXPECT_TRUE(covers({{0, 1, 0, 4}, {0, 1, 4, 6}, {2, 2, 0, 0}}));
  ASSERT_EQ(items.size(), 4U);  // and the plane without symbols
  EXPECT_TRUE(items[0].cut);
  EXPECT_EQ(items[1].symbols, 12U);
  EXPECT_EQ(items[2].piece, DecodeItem::kNoPiece);
  EXPECT_TRUE(covers({{0, 2, 0, 0}, {2, 1, 0, 10}, {3, 1, 0, 0}}));
  EXPECT_FALSE(items[1].cut);
  EXPECT_FALSE(covers({}));
  EXPECT_FALSE(covers({{0, 3, 0, 0}}));
  EXPECT_FALSE(covers({{0, 5, 0, 0}}));
  EXPECT_FALSE(covers({{0, 1, 0, 4}, {2, 2, 0, 0}}));
  EXPECT_FALSE(covers({{0, 1, 0, 11}, {2, 2, 0, 0}}));
  EXPECT_FALSE(covers({{0, 1, 1, 9}, {2, 2, 0, 0}}));
  EXPECT_FALSE(covers({{0, 4, 0, 0}, {4, 1, 0, 0}}));
  EXPECT_FALSE(covers({{2, 2, 0, 0}}));
}

}  // namespace
}  // namespace kvserve
