// What is written is read back, whole: every field, every section, frames back to back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/hash.h"
#include "frame/frame.h"
#include "frame/layout.h"
#include "frame/testing/sample_frame.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;
using testing::Pattern;
using testing::Print;
using testing::Sample;
using testing::SmolHeader;
using testing::WindowedHeader;

FrameHeader RoundTrip(const FrameHeader& header) {
  std::vector<std::byte> bytes;
  const auto status = WriteFrame(header, {}, bytes);
  EXPECT_TRUE(status) << status.error().message;
  auto view = ReadFrame(bytes);
  EXPECT_TRUE(view) << view.error().message;
  return view ? view->header : FrameHeader{};
}

Error WriteError(const FrameHeader& header, std::span<const Section> sections = {}) {
  std::vector<std::byte> bytes;
  const auto status = WriteFrame(header, sections, bytes);
  EXPECT_FALSE(status);
  EXPECT_TRUE(bytes.empty()) << "a refused frame leaves bytes behind";
  return status ? Error{} : status.error();
}

TEST(RoundTrip, HeaderAndSections) {
  const auto sample = Sample();
  std::vector<std::byte> bytes = Pattern(3, 0);  // WriteFrame appends
  ASSERT_TRUE(WriteFrame(sample.header, sample.sections(), bytes));
  const auto view = ReadFrame(std::span(bytes).subspan(3));
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->header, sample.header);
  EXPECT_EQ(view->frame_bytes, bytes.size() - 3);
  ASSERT_EQ(view->sections.size(), 2U);
  EXPECT_EQ(view->sections[0].kind, SectionKind::kSide);
  EXPECT_TRUE(std::ranges::equal(view->sections[0].bytes, sample.side));
  EXPECT_EQ(view->sections[1].kind, SectionKind::kSymbols);
  EXPECT_TRUE(std::ranges::equal(view->sections[1].bytes, sample.symbols));
  EXPECT_EQ(view->section_checksums[1], Hash64(sample.symbols, 3));
}

TEST(RoundTrip, TrailingBytesAreTheNextFrame) {
  const auto first = Sample();
  auto second = Sample();
  second.header.tokens = {512, 600};
  for (auto& layer : second.header.layers) layer.tokens = second.header.tokens;
  std::vector<std::byte> file;
  ASSERT_TRUE(WriteFrame(first.header, first.sections(), file));
  ASSERT_TRUE(WriteFrame(second.header, second.sections(), file));
  const auto a = ReadFrame(file);
  ASSERT_TRUE(a);
  const auto b = ReadFrame(std::span(file).subspan(a->frame_bytes));
  ASSERT_TRUE(b);
  EXPECT_EQ(a->header, first.header);
  EXPECT_EQ(b->header, second.header);
  EXPECT_EQ(a->frame_bytes + b->frame_bytes, file.size());
}

TEST(RoundTrip, EmptySectionsAndZeroTokens) {
  auto header = SmolHeader();
  header.tokens = {256, 256};
  for (auto& layer : header.layers) layer.tokens = header.tokens;
  std::vector<std::byte> bytes;
  const std::vector<Section> sections = {{SectionKind::kClasses, {}}, {SectionKind::kSymbols, {}}};
  ASSERT_TRUE(WriteFrame(header, sections, bytes));
  const auto view = ReadFrame(bytes);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->header, header);
  ASSERT_EQ(view->sections.size(), 2U);
  EXPECT_TRUE(view->sections[1].bytes.empty());
}

// Layers of two shapes in a 5:1 pattern keep their own shapes.
TEST(RoundTrip, LayersKeepTheirOwnShapes) {
  const auto header = WindowedHeader();
  EXPECT_EQ(RoundTrip(header), header);
}

TEST(RoundTrip, LayerRangesGapsAndSinglePlanes) {
  auto header = WindowedHeader();
  header.layers.erase(header.layers.begin() + 30, header.layers.begin() + 33);
  header.layers.erase(header.layers.begin(), header.layers.begin() + 7);
  header.layers.back().geometry.v_dim = 0;  // one latent plane
  header.layers[4].tokens = {512, 512};     // a window that holds nothing of this frame
  EXPECT_EQ(RoundTrip(header), header);
  header.layers.resize(1);
  EXPECT_EQ(RoundTrip(header), header);
}

TEST(RoundTrip, EveryDTypeAndTheLimits) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    auto header = SmolHeader();
    header.dtype = dtype;
    header.artefact = Print(200);
    EXPECT_EQ(RoundTrip(header), header);
  }
  FrameHeader header;
  header.model_layers = kMaxLayers;
  header.tokens = {kMaxTokens - 1, kMaxTokens};
  header.prompt_tokens = kMaxTokens;
  header.layers.push_back(
      {kMaxLayers - 1, {.kv_heads = kMaxHeads, .k_dim = kMaxDim, .v_dim = kMaxDim}, header.tokens});
  EXPECT_EQ(RoundTrip(header), header);
}

// A stage's id, version, seed and every other setting travel in the header: a receiver without the
// transform, or with another seed, has nothing to guess.
TEST(RoundTrip, ParameterValues) {
  auto header = SmolHeader();
  header.stages = {{.id = 65535, .version = 255, .parameters = {}}};
  const double values[] = {0,
                           1,
                           -1,
                           63,
                           -64,
                           0.5,
                           1.0 / 3,
                           -1e-300,
                           1e15 + 0.5,
                           3e15,
                           -3e15,
                           1e-9,
                           255,
                           1e15,
                           4096,
                           9007199254740992.0,
                           -9007199254740992.0};
  std::uint8_t id = 0;
  for (const double value : values) header.stages[0].parameters.push_back({id++, value});
  EXPECT_EQ(RoundTrip(header), header);

  auto other_seed = header;
  other_seed.stages[0].parameters[1].value = 2;
  EXPECT_FALSE(RoundTrip(other_seed) == header);
}

TEST(WriteFrame, RefusesWhatTheFormatCannotSay) {
  auto header = SmolHeader();
  header.version = 2;
  EXPECT_THAT(WriteError(header).message, HasSubstr("version 2"));
  header = SmolHeader();
  header.features = 4;
  EXPECT_THAT(WriteError(header).message, HasSubstr("features 4"));
  header = SmolHeader();
  header.tokens.end = header.tokens.begin - 1;
  EXPECT_THAT(WriteError(header).message, HasSubstr("tokens [256, 255)"));
  header = SmolHeader();
  header.prompt_tokens = 511;
  EXPECT_THAT(WriteError(header).message, HasSubstr("prompt_tokens 511"));
  header = SmolHeader();
  header.layers.clear();
  EXPECT_THAT(WriteError(header).message, HasSubstr("layers 0"));
  header = SmolHeader();
  std::swap(header.layers[3], header.layers[4]);
  EXPECT_THAT(WriteError(header).message, HasSubstr("layer 3 is out of order"));
  header = SmolHeader();
  header.layers[9].geometry.kv_heads = 0;
  EXPECT_THAT(WriteError(header).message, HasSubstr("layer 9: kv_heads 0 is outside 1..4096"));
  header = SmolHeader();
  header.layers[9].tokens.end = 513;
  EXPECT_THAT(WriteError(header).message, HasSubstr("layer 9: tokens [256, 513)"));
  header = SmolHeader();
  header.stages.resize(kMaxStages + 1, header.stages[0]);
  EXPECT_THAT(WriteError(header).message, HasSubstr("stages 33"));
}

TEST(WriteFrame, RefusesParametersThatAreNoNumbers) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), 1e300}) {
    auto header = SmolHeader();
    header.stages[0].parameters[0].value = value;
    const auto error = WriteError(header);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr("stage 513: parameter 1"));
  }
  auto header = SmolHeader();
  header.stages[0].parameters = {{2, 0.0}, {2, 1.0}};
  EXPECT_THAT(WriteError(header).message, HasSubstr("ids must ascend"));
}

TEST(WriteFrame, RefusesUnknownDTypes) {
  auto header = SmolHeader();
  header.dtype = static_cast<DType>(9);
  const auto error = WriteError(header);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("id 9"));
}

TEST(WriteFrame, RefusesSectionsOutOfOrder) {
  const std::vector<Section> swapped = {{SectionKind::kSymbols, {}}, {SectionKind::kSide, {}}};
  EXPECT_THAT(WriteError(SmolHeader(), swapped).message, HasSubstr("section kind 2"));
  const std::vector<Section> twice = {{SectionKind::kSide, {}}, {SectionKind::kSide, {}}};
  EXPECT_THAT(WriteError(SmolHeader(), twice).message, HasSubstr("section kind 2"));
  const std::vector<Section> unknown = {{static_cast<SectionKind>(9), {}}};
  EXPECT_THAT(WriteError(SmolHeader(), unknown).message, HasSubstr("section kind 9 is unknown"));
}

TEST(WriteFrame, RefusesRawBytesNobodyCanHold) {
  auto header = SmolHeader();
  header.tokens = {0, kMaxTokens};
  header.prompt_tokens = 0;
  for (auto& layer : header.layers) {
    layer.tokens = header.tokens;
    layer.geometry.kv_heads = kMaxHeads;
    layer.geometry.k_dim = layer.geometry.v_dim = kMaxDim;
  }
  EXPECT_THAT(WriteError(header).message, HasSubstr("raw bytes"));
}

}  // namespace
}  // namespace kvserve
