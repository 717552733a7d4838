// Whitening, predictors and code tables: what is written is read, lookups, and
// hostile sections.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/hash.h"
#include "base/try.h"
#include "library/calibration_file.h"
#include "library/sections/section.h"
#include "library/testing/sample_calibration.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;
using Bytes = std::vector<std::byte>;

Contents Sample() {
  Contents contents = testing::SampleCalibration();
  contents.code_tables = testing::SampleCodeTables(contents.geometry, 64);
  contents.code_tables->points[1].planes[3] = {};
  return contents;
}

template <typename Change>
void ExpectNotWritten(Change change, const std::string& says) {
  Contents contents = Sample();
  change(contents);
  const auto bytes = FormatCalibration(contents);
  ASSERT_FALSE(bytes) << says;
  EXPECT_EQ(bytes.error().code, ErrorCode::kInvalidArgument) << bytes.error().message;
  EXPECT_NE(bytes.error().message.find(says), std::string::npos) << bytes.error().message;
}

TEST(TransformSections, EverythingComesBack) {
  const Contents contents = Sample();
  const auto artefact = ParseCalibration(FormatCalibration(contents).value());
  ASSERT_TRUE(artefact) << artefact.error().message;
  const Contents& read = (*artefact)->contents();
  ASSERT_EQ(read.whitening.size(), 8U);
  ASSERT_EQ(read.predictors.size(), 8U);
  for (std::size_t p = 0; p < 8; ++p) {
    EXPECT_EQ(read.whitening[p].columns, contents.whitening[p].columns) << p;
    EXPECT_EQ(read.whitening[p].mean, contents.whitening[p].mean) << p;
    EXPECT_EQ(read.whitening[p].scale, contents.whitening[p].scale) << p;
    EXPECT_EQ(read.whitening[p].inverse, contents.whitening[p].inverse) << p;
    EXPECT_EQ(read.predictors[p].inputs, contents.predictors[p].inputs) << p;
    EXPECT_EQ(read.predictors[p].scale, contents.predictors[p].scale) << p;
    EXPECT_EQ(read.predictors[p].weights, contents.predictors[p].weights) << p;
  }
}

// Version 2 of sections; both that readers may skip no longer.
TEST(TransformSections, FewBitsComeBack) {
  Contents contents = Sample();
  testing::MakeCompact(contents);
  const auto bytes = FormatCalibration(contents).value();
  EXPECT_LT(bytes.size(), FormatCalibration(Sample())->size());
  const auto artefact = ParseCalibration(bytes);
  ASSERT_TRUE(artefact) << artefact.error().message;
  const Contents& read = (*artefact)->contents();
  for (std::size_t p = 0; p < 8; ++p) {
    EXPECT_EQ(read.whitening[p].bits, contents.whitening[p].bits) << p;
    EXPECT_EQ(read.whitening[p].scale, contents.whitening[p].scale) << p;
    EXPECT_EQ(read.whitening[p].inverse, contents.whitening[p].inverse) << p;
    EXPECT_EQ(read.predictors[p].bits, contents.predictors[p].bits) << p;
    EXPECT_EQ(read.predictors[p].scale, contents.predictors[p].scale) << p;
    EXPECT_EQ(read.predictors[p].weights, contents.predictors[p].weights) << p;
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read.query_statistics[i].covariance, contents.query_statistics[i].covariance) << i;
    EXPECT_EQ(read.query_statistics[i].rounded, contents.query_statistics[i].rounded) << i;
  }
  EXPECT_EQ(read.predictor_layers, 2U);
  EXPECT_EQ(FormatCalibration(read).value(), bytes);
}

// What a plane of few bits holds is checked against them, and versions need no more than they say.
TEST(TransformSections, ValuesBeyondTheirBitsAreNotWritten) {
  ExpectNotWritten([](Contents& c) { c.whitening[0].bits = 6; }, "layer 0 K: a value");
  ExpectNotWritten([](Contents& c) { c.predictors[1].bits = 7; }, "layer 0 V: a value");
  ExpectNotWritten([](Contents& c) { c.predictors[1].bits = 1; }, "1 bits per value");
  ExpectNotWritten([](Contents& c) { c.whitening[0].bits = 9; }, "9 bits per value");
  const Contents contents = Sample();
  EXPECT_TRUE(FindCalibrationSection(7, 1)->present(contents));
  EXPECT_FALSE(FindCalibrationSection(7, 2)->present(contents));
  EXPECT_FALSE(FindCalibrationSection(7, 1)->required);
  EXPECT_TRUE(FindCalibrationSection(7, 2)->required);
  EXPECT_TRUE(FindCalibrationSection(8, 2)->required);
  EXPECT_EQ(FindCalibrationSection(8, 3), nullptr);
}

TEST(TransformSections, CodeTablesComeBack) {
  const Contents contents = Sample();
  const auto artefact = ParseCalibration(FormatCalibration(contents).value());
  ASSERT_TRUE(artefact) << artefact.error().message;
  ASSERT_NE((*artefact)->code_tables(), nullptr);
  const CodeTables& read = *(*artefact)->code_tables();
  const CodeTables& written = *contents.code_tables;
  EXPECT_EQ(read.frequencies, written.frequencies);
  EXPECT_EQ(read.mean_size, written.mean_size);
  EXPECT_EQ(read.classes, written.classes);
  ASSERT_EQ(read.points.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.points[i].step, written.points[i].step);
    EXPECT_EQ(read.points[i].bits_per_value, written.points[i].bits_per_value);
    ASSERT_EQ(read.points[i].planes.size(), 8U);
    for (std::size_t p = 0; p < 8; ++p) {
      EXPECT_EQ(read.points[i].planes[p].column, written.points[i].planes[p].column) << p;
      EXPECT_EQ(read.points[i].planes[p].klass, written.points[i].planes[p].klass) << p;
      EXPECT_EQ(read.points[i].planes[p].energy, written.points[i].planes[p].energy) << p;
    }
  }
}

TEST(TransformSections, LookupsFindWhatIsThere) {
  const CalibrationArtefact artefact(testing::SampleCalibration(), {});
  ASSERT_NE(artefact.whitening(0, PlaneKind::kKey), nullptr);
  EXPECT_EQ(artefact.whitening(0, PlaneKind::kKey)->columns, 8U);
  EXPECT_EQ(artefact.whitening(1, PlaneKind::kKey), nullptr);  // left out
  EXPECT_EQ(artefact.whitening(99, PlaneKind::kKey), nullptr);
  EXPECT_EQ(artefact.predictor(0, PlaneKind::kKey), nullptr);  // nothing before it
  ASSERT_NE(artefact.predictor(0, PlaneKind::kValue), nullptr);
  EXPECT_EQ(artefact.predictor(0, PlaneKind::kValue)->inputs, 8U);
  EXPECT_EQ(artefact.predictor(2, PlaneKind::kValue)->inputs, 8U + 4 + 8);
  EXPECT_EQ(artefact.code_tables(), nullptr);
  const CalibrationArtefact empty(Contents{}, {});
  EXPECT_EQ(empty.whitening(0, PlaneKind::kKey), nullptr);
  EXPECT_EQ(empty.predictor(0, PlaneKind::kKey), nullptr);
}

TEST(TransformSections, InputsAreThePlanesBefore) {
  KvGeometry geometry;
  geometry.layers = {{.kv_heads = 2, .k_dim = 8, .v_dim = 4},
                     {.kv_heads = 1, .k_dim = 6},
                     {.kv_heads = 3, .k_dim = 2, .v_dim = 5}};
  const std::size_t expected[] = {0, 16, 16 + 8, 16 + 8 + 6, 6, 6 + 6};
  for (std::size_t p = 0; p < 6; ++p) EXPECT_EQ(PredictorInputs(geometry, p, 1), expected[p]) << p;
  for (const std::uint32_t layers : {2U, 8U}) {
    for (std::size_t p = 0; p < 4; ++p) {
      EXPECT_EQ(PredictorInputs(geometry, p, layers), expected[p]) << p;
    }
    EXPECT_EQ(PredictorInputs(geometry, 4, layers), 16U + 8 + 6);
    EXPECT_EQ(PredictorInputs(geometry, 5, layers), 16U + 8 + 6 + 6);
  }
}

TEST(TransformSections, ClassesMayBeLeftOut) {
  Contents contents = Sample();
  contents.code_tables->classes = {};
  const auto artefact = ParseCalibration(FormatCalibration(contents).value());
  ASSERT_TRUE(artefact) << artefact.error().message;
  EXPECT_FALSE((*artefact)->code_tables()->has_classes());
  EXPECT_TRUE(Sample().code_tables->has_classes());
}

TEST(TransformSections, SampleTablesAreTwoSidedAndGrow) {
  const Contents contents = Sample();
  const CodeTables& tables = *contents.code_tables;
  for (std::size_t i = 0; i < kCodeTables; ++i) {
    EXPECT_EQ(tables.frequencies[i][126], tables.frequencies[i][128]) << i;
    EXPECT_GE(tables.mean_size[i], tables.mean_size[i == 0 ? 0 : i - 1]) << i;
  }
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(TransformSections, NoReaderWouldTakeThisWhitening) {
  ExpectNotWritten([](Contents& c) { c.whitening.pop_back(); }, "whitening: there is no plane");
  ExpectNotWritten([](Contents& c) { c.whitening[0].columns = 3; }, "layer 0 K: sizes");
  ExpectNotWritten([](Contents& c) { c.whitening[0].columns = 0; }, "layer 0 K: sizes");
  ExpectNotWritten([](Contents& c) { c.whitening[1].mean.pop_back(); }, "layer 0 V: sizes");
  ExpectNotWritten([](Contents& c) { c.whitening[0].mean[1] = kNan; }, "a mean");
  ExpectNotWritten([](Contents& c) { c.whitening[0].scale[1] = 0; }, "scale of component 1");
  ExpectNotWritten([](Contents& c) { c.whitening[0].scale[1] = INFINITY; }, "component 1");
  ExpectNotWritten([](Contents& c) { c.whitening[0].scale[1] = 1e-40F; }, "component 1");
  ExpectNotWritten([](Contents& c) { c.whitening[0].inverse[1] = -128; }, "-128");
  ExpectNotWritten(
      [](Contents& c) { std::fill_n(c.whitening[0].inverse.begin() + 8, 8, std::int8_t{0}); },
      "component 1 is zero");
}

TEST(TransformSections, NoReaderWouldTakeThesePredictors) {
  ExpectNotWritten([](Contents& c) { c.predictors.pop_back(); }, "predictors: there is no plane");
  ExpectNotWritten([](Contents& c) { c.predictors[1].inputs = 4; }, "layer 0 V: sizes");
  ExpectNotWritten([](Contents& c) { c.predictors[1].weights.pop_back(); }, "sizes");
  ExpectNotWritten([](Contents& c) { c.predictors[0] = c.predictors[1]; }, "layer 0 K: sizes");
  ExpectNotWritten([](Contents& c) { c.predictors[1].scale[2] = -1; }, "component 2");
  ExpectNotWritten([](Contents& c) { c.predictors[1].scale[2] = kNan; }, "component 2");
  ExpectNotWritten([](Contents& c) { c.predictors[1].weights[3] = -128; }, "-128");
}

TEST(TransformSections, NoReaderWouldTakeTheseTables) {
  ExpectNotWritten([](Contents& c) { ++c.code_tables->frequencies[5][100]; }, "table 5");
  ExpectNotWritten(
      [](Contents& c) {
        auto& table = c.code_tables->frequencies[5];
        table[127] = static_cast<std::uint16_t>(table[127] + table[255]);
        table[255] = 0;
      },
      "no escape");
  ExpectNotWritten([](Contents& c) { c.code_tables->points.clear(); }, "outside 1..64");
  ExpectNotWritten([](Contents& c) { c.code_tables->points[0].step = 0; }, "ascending");
  ExpectNotWritten([](Contents& c) { c.code_tables->points[0].step = 2; }, "ascending");
  ExpectNotWritten([](Contents& c) { c.code_tables->points[1].step = kNan; }, "ascending");
  ExpectNotWritten([](Contents& c) { c.code_tables->points[1].bits_per_value = -1; }, "bits");
  ExpectNotWritten([](Contents& c) { c.code_tables->points[1].planes.pop_back(); }, "two planes");
  ExpectNotWritten([](Contents& c) { c.code_tables->points[1].planes[2].column.pop_back(); },
                   "layer 1 K: 7 columns");
  ExpectNotWritten([](Contents& c) { ++c.code_tables->classes[1][3][4]; }, "do not sum");
  ExpectNotWritten(
      [](Contents& c) {
        auto& row = c.code_tables->classes[1][3];
        row[3] = static_cast<std::uint16_t>(row[3] + row[4]);
        row[4] = 0;
      },
      "never occurs");
}

// A section's bytes for a model of one layer of 1 head, K 2, V 1.
Status ReadAs(std::uint8_t kind, const Bytes& bytes, std::uint8_t version = 1) {
  Contents contents;
  contents.geometry.layers = {{.kv_heads = 1, .k_dim = 2, .v_dim = 1}};
  const CalibrationSection& section = *FindCalibrationSection(kind, version);
  ByteReader in(bytes);
  KVSERVE_TRY(section.read(in, contents));
  if (in.remaining() != 0) return MakeError(ErrorCode::kCorruptData, "bytes left over");
  return section.check(contents);
}

Bytes Written(const std::function<void(ByteWriter&)>& write) {
  Bytes bytes;
  ByteWriter out(bytes);
  write(out);
  return bytes;
}

void ExpectRefused(const Status& status, const std::string& says) {
  ASSERT_FALSE(status) << says;
  EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  EXPECT_NE(status.error().message.find(says), std::string::npos) << status.error().message;
}

TEST(TransformSections, HostileWhiteningIsRefused) {
  const auto whitening = [](std::uint64_t columns, float scale, std::int8_t corner,
                            std::size_t dropped) {
    Bytes bytes = Written([=](ByteWriter& out) {
      out.PutVarint(columns);
      for (const float value : {0.0F, 0.0F, scale, 1.0F}) out.Put(value);
      for (const int value : {int{corner}, 0, 0, 1}) out.Put(static_cast<std::int8_t>(value));
      out.Put(std::uint8_t{0});
    });
    bytes.resize(bytes.size() - dropped);
    return ReadAs(7, bytes);
  };
  EXPECT_TRUE(whitening(2, 1, 1, 0));
  ExpectRefused(whitening(3, 1, 1, 0), "groups of 3");
  ExpectRefused(whitening(std::uint64_t{1} << 62, 1, 1, 0), "groups of");
  ExpectRefused(whitening(1, 1, 1, 0), "left over");
  ExpectRefused(whitening(2, -1, 1, 0), "positive");
  ExpectRefused(whitening(2, 1, 0, 0), "zero");
  ExpectRefused(whitening(2, 1, -128, 0), "-128");
  ExpectRefused(whitening(2, 1, 1, 1), "truncated");
  ExpectRefused(whitening(2, 1, 1, 3), "truncated");
  ExpectRefused(ReadAs(7, Bytes(2)), "there is no plane");
}

TEST(TransformSections, HostilePredictorsAreRefused) {
  const auto predictors = [](std::uint8_t first, float scale, std::int8_t weight,
                             std::size_t dropped) {
    Bytes bytes = Written([=](ByteWriter& out) {
      out.Put(first);
      out.Put(std::uint8_t{1});
      out.Put(scale);
      out.Put(weight);
      out.Put(std::int8_t{-127});
    });
    bytes.resize(bytes.size() - dropped);
    return ReadAs(8, bytes);
  };
  EXPECT_TRUE(predictors(0, 0, -127, 0));
  ExpectRefused(predictors(1, 0, 1, 0), "nothing to predict it from");
  ExpectRefused(predictors(2, 0, 1, 0), "neither 0 nor 1");
  ExpectRefused(predictors(0, -1, 1, 0), "negative");
  ExpectRefused(predictors(0, INFINITY, 1, 0), "not finite");
  ExpectRefused(predictors(0, 1, -128, 0), "-128");
  ExpectRefused(predictors(0, 1, 1, 1), "truncated");
  ExpectRefused(ReadAs(8, Bytes(2)), "there is no plane");
}

TEST(TransformSections, HostileCompactMatricesAreRefused) {
  const auto whitening = [](std::uint8_t bits, std::uint8_t first, std::uint8_t last,
                            std::size_t dropped) {
    Bytes bytes = Written([=](ByteWriter& out) {
      out.PutVarint(2);
      out.Put(bits);
      for (const float value : {0.0F, 0.0F, 1.0F, 1.0F}) out.Put(value);
      for (const std::uint8_t byte : {first, last}) out.Put(byte);
      out.Put(std::uint8_t{0});
    });
    bytes.resize(bytes.size() - dropped);
    return ReadAs(7, bytes, 2);
  };
  // 4 bits: 1, 0, 0, 1 as 8, 7, 7, 8.
  EXPECT_TRUE(whitening(4, 0x78, 0x87, 0));
  ExpectRefused(whitening(4, 0x7F, 0x87, 0), "no opposite");
  ExpectRefused(whitening(4, 0x77, 0x87, 0), "component 0 is zero");
  ExpectRefused(whitening(3, 0x1C, 0x87, 0), "end with zeros");  // 3 bits leave 4 over
  ExpectRefused(whitening(4, 0x78, 0x87, 1), "truncated");
  ExpectRefused(whitening(4, 0x78, 0x87, 2), "truncated");
  for (const unsigned bits : {0U, 1U, 9U, 255U}) {
    ExpectRefused(whitening(static_cast<std::uint8_t>(bits), 0x78, 0x87, 0), "are not 2..8");
  }
  const auto predictors = [](std::uint8_t k, std::uint8_t v, std::uint8_t packed,
                             std::size_t dropped, std::uint8_t layers = 1) {
    Bytes bytes = Written([=](ByteWriter& out) {
      out.Put(layers);
      out.Put(k);
      out.Put(v);
      out.Put(1.0F);
      out.Put(packed);
    });
    bytes.resize(bytes.size() - dropped);
    return ReadAs(8, bytes, 2);
  };
  EXPECT_TRUE(predictors(0, 3, 0x1E, 0));  // 3 and 0 of 3 bits, as 6 and 3
  ExpectRefused(predictors(3, 3, 0x1E, 0), "nothing to predict it from");
  ExpectRefused(predictors(0, 1, 0x1E, 0), "are not 2..8");
  ExpectRefused(predictors(0, 3, 0x07, 0), "no opposite");
  ExpectRefused(predictors(0, 3, 0x5E, 0), "end with zeros");
  ExpectRefused(predictors(0, 3, 0x1E, 1), "truncated");
  EXPECT_TRUE(predictors(0, 3, 0x1E, 0, 8));
  ExpectRefused(predictors(0, 3, 0x1E, 0, 0), "from 0 layers, not 1..8");
  ExpectRefused(predictors(0, 3, 0x1E, 0, 9), "from 9 layers, not 1..8");
  ExpectRefused(ReadAs(8, Bytes{std::byte{1}, std::byte{0}, std::byte{0}}, 2), "there is no plane");
}

TEST(TransformSections, HostileCorrelationsAreRefused) {
  const auto queries = [](float variance, std::int8_t correlation, std::size_t dropped) {
    Bytes bytes = Written([=](ByteWriter& out) {
      out.PutVarint(1);
      for (const float value : {0.0F, 0.0F, variance, 1.0F}) out.Put(value);
      out.Put(correlation);
    });
    bytes.resize(bytes.size() - dropped);
    return ReadAs(5, bytes, 2);
  };
  EXPECT_TRUE(queries(4, -127, 0));
  EXPECT_TRUE(queries(0, 5, 0));
  ExpectRefused(queries(-1, 0, 0), "negative");
  ExpectRefused(queries(INFINITY, 0, 0), "not finite");
  ExpectRefused(queries(kNan, 0, 0), "not finite");
  ExpectRefused(queries(1, -128, 0), "-128");
  ExpectRefused(queries(1, 1, 1), "truncated");
}

// The bytes of code tables of a small model, to be changed.
Bytes TableBytes() {
  Contents contents;
  contents.geometry.layers = {{.kv_heads = 1, .k_dim = 2, .v_dim = 1}};
  contents.code_tables = testing::SampleCodeTables(contents.geometry, 64);
  return Written([&](ByteWriter& out) { FindCalibrationSection(9)->write(contents, out); });
}

TEST(TransformSections, HostileTablesAreRefused) {
  const Bytes sound = TableBytes();
  ASSERT_TRUE(ReadAs(9, sound));
  constexpr std::size_t kTables = 60 * 256 * 2;
  constexpr std::size_t kClasses = kTables + 60 * 2;
  constexpr std::size_t kPoints = kClasses + 1 + 2 * 14 * 13 * 2;
  for (std::size_t size = 0; size < sound.size(); size += size < kTables ? 61 : 1) {
    ExpectRefused(ReadAs(9, Bytes(sound.begin(), sound.begin() + static_cast<long>(size))),
                  "truncated");
  }
  const auto changed = [&](std::size_t at, int value) {
    Bytes bytes = sound;
    bytes[at] = static_cast<std::byte>(value);
    return ReadAs(9, bytes);
  };
  ExpectRefused(changed(2, 9), "sum to 4096");
  ExpectRefused(changed(kClasses, 2), "neither 0 nor 1");
  ExpectRefused(changed(kClasses + 5, 255), "classes do not sum");
  ExpectRefused(changed(kPoints, 0), "0 operating points");
  ExpectRefused(changed(kPoints, 65), "65 operating points");
  ExpectRefused(changed(kPoints, 1), "left over");
  ExpectRefused(changed(kPoints + 4, 0xFF), "ascending");  // a negative step
  ExpectRefused(changed(kPoints + 9, 7), "neither 0 nor 1");
}

}  // namespace
}  // namespace kvserve
