#include "pipeline/class_coding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/try.h"
#include "library/testing/sample_transform.h"
#include "pipeline/testing/chunk.h"
#include "pipeline/token_classes.h"

namespace kvserve {
namespace {

const CodeTables& Tables() {
  static const CodeTables tables =
      testing::SampleCodeTables(testing::MakeGeometry(DType::kFloat16, {{1, 4, 4}}), 8);
  return tables;
}

// K and V of some layers; a layer is missing, planes differ in length, one is nominal.
std::vector<SymbolPlane> Planes() {
  std::mt19937 random(3);
  std::vector<SymbolPlane> planes;
  for (const std::uint32_t layer : {0U, 1U, 2U, 4U, 5U}) {
    for (const PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
      SymbolPlane plane;
      plane.layer = layer;
      plane.kind = kind;
      plane.tokens = layer == 2 ? 17 : 60 + layer;
      plane.columns = 4;
      for (std::uint32_t row = 0; row < plane.tokens; ++row) {
        plane.token_classes.push_back(static_cast<std::uint8_t>(5 + (row / 8 + random() % 2) % 4));
      }
      planes.push_back(plane);
    }
  }
  planes[6].token_classes.clear();
  planes.push_back(planes.back());
  planes.back().layer = 6;
  planes.back().tokens = 0;
  planes.back().token_classes.clear();
  return planes;
}

std::vector<std::byte> Written(const std::vector<SymbolPlane>& planes) {
  Arena arena;
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  EXPECT_TRUE(WriteCodedClasses(Tables(), planes, arena, writer));
  return bytes;
}

Status Read(const std::vector<std::byte>& bytes, std::vector<SymbolPlane>& planes) {
  ByteReader reader(bytes);
  KVSERVE_TRY(ReadCodedClasses(Tables(), reader, planes));
  return reader.remaining() == 0 ? Status() : MakeError(ErrorCode::kCorruptData, "left over");
}

TEST(ClassCoding, RoundTripsAtTheTablesCost) {
  const auto planes = Planes();
  const auto bytes = Written(planes);
  auto restored = planes;
  for (SymbolPlane& plane : restored) plane.token_classes.assign(3, 9);
  ASSERT_TRUE(Read(bytes, restored));
  double bits = 0;
  for (std::size_t p = 0; p < planes.size(); ++p) {
    EXPECT_EQ(restored[p].token_classes, planes[p].token_classes) << p;
    const auto kind = static_cast<std::size_t>(planes[p].kind);
    const bool follows = p >= 2 && planes[p - 2].layer + 1 == planes[p].layer;
    for (std::uint32_t left = planes[p].tokens; left-- > 0;) {
      std::size_t before = kNoClass;
      if (follows && left < planes[p - 2].tokens) {
        const auto& classes = planes[p - 2].token_classes;
        before = classes.empty() ? kNominalClass : classes[classes.size() - 1 - left];
      }
      const auto& own = planes[p].token_classes;
      const std::size_t token_class = own.empty() ? kNominalClass : own[own.size() - 1 - left];
      bits -= std::log2(Tables().classes[kind][before][token_class] / 4096.0);
    }
  }
  EXPECT_NEAR(static_cast<double>(bytes.size()), bits / 8, 4);
}

TEST(ClassCoding, RefusesWhatTablesLack) {
  auto planes = Planes();
  planes[1].token_classes[2] = kDroppedToken;
  Arena arena;
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  EXPECT_FALSE(WriteCodedClasses(Tables(), planes, arena, writer));
  EXPECT_TRUE(bytes.empty());
}

TEST(ClassCoding, DamagedBytesAreNoticedOrGiveClasses) {
  const auto planes = Planes();
  const auto bytes = Written(planes);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto damaged = bytes;
    damaged[at] ^= std::byte{0x11};
    auto restored = planes;
    const Status status = Read(damaged, restored);
    if (!status) {
      EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
      ++refused;
    }
    damaged.resize(at);
    EXPECT_FALSE(Read(damaged, restored)) << at;
  }
  EXPECT_GT(refused, bytes.size() * 9 / 10);
}

}  // namespace
}  // namespace kvserve
