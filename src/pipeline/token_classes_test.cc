// Classes of weights, and their coding in every form, also of hostile bytes.
#include "pipeline/token_classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace kvserve {
namespace {

using Classes = std::vector<std::uint8_t>;

constexpr std::uint8_t kDropped = kDroppedToken;

SymbolPlane Plane(const Classes& classes, std::uint32_t tokens = 0) {
  SymbolPlane plane;
  plane.tokens = tokens > 0 ? tokens : static_cast<std::uint32_t>(classes.size());
  plane.columns = 4;
  plane.token_classes = classes;
  return plane;
}

std::vector<std::byte> Written(const std::vector<SymbolPlane>& planes) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  WriteTokenClasses(planes, writer);
  return bytes;
}

Status Read(std::span<const std::byte> bytes, std::vector<SymbolPlane>& planes) {
  for (SymbolPlane& plane : planes) plane.token_classes.clear();
  ByteReader reader(bytes);
  auto status = ReadTokenClasses(reader, planes);
  if (status && reader.remaining() > 0) return MakeError(ErrorCode::kCorruptData, "left over");
  return status;
}

// Returns the bytes.
std::size_t ExpectRoundTrip(const std::vector<SymbolPlane>& planes) {
  const auto bytes = Written(planes);
  std::vector<SymbolPlane> read = planes;
  EXPECT_TRUE(Read(bytes, read));
  for (std::size_t p = 0; p < planes.size(); ++p) {
    EXPECT_EQ(read[p].token_classes, planes[p].token_classes) << "plane " << p;
  }
  return bytes.size();
}

TEST(TokenClasses, ClassIsTheNearestOctaveOfTheWeight) {
  EXPECT_EQ(TokenClassOf(1.0F), kNominalClass);
  EXPECT_EQ(TokenClassOf(1.41F), kNominalClass);
  EXPECT_EQ(TokenClassOf(1.42F), kNominalClass + 1);
  EXPECT_EQ(TokenClassOf(0.71F), kNominalClass);
  EXPECT_EQ(TokenClassOf(0.70F), kNominalClass - 1);
  EXPECT_EQ(TokenClassOf(4.0F), kNominalClass + 2);
  EXPECT_EQ(TokenClassOf(0x1p-6F), 0);
  EXPECT_EQ(TokenClassOf(0x1p-100F), 0);
  EXPECT_EQ(TokenClassOf(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(TokenClassOf(0x1p6F), kTokenClasses - 1);
  EXPECT_EQ(TokenClassOf(std::numeric_limits<float>::max()), kTokenClasses - 1);
  EXPECT_EQ(TokenClassOf(0.0F), kDropped);
}

TEST(TokenClasses, StepOfAClassIsAtMostItsShareOfTheNominal) {
  for (std::uint32_t levels = 2; levels <= 256; ++levels) {
    EXPECT_EQ(LevelsOfClass(levels, kNominalClass), levels);
    for (std::uint8_t c = 0; c < kTokenClasses; ++c) {
      const std::uint32_t wanted = LevelsOfClass(levels, c);
      const double share = std::exp2(0.5 * (kNominalClass - c));
      ASSERT_GE(wanted, 2U);
      ASSERT_LE(wanted, 256U);
      if (wanted == 256) continue;
      EXPECT_LE(1.0 / (wanted - 1), share / (levels - 1) * (1 + 1e-12)) << levels << " " << int{c};
      if (wanted > 2) {
        EXPECT_GT(1.0 / (wanted - 2), share / (levels - 1)) << levels << " " << int{c};
      }
    }
  }
  EXPECT_EQ(LevelsOfClass(16, 0), 3U);
  EXPECT_EQ(LevelsOfClass(16, 12), 121U);
}

TEST(TokenClasses, NominalPlanesTakeNoBytes) {
  EXPECT_EQ(ExpectRoundTrip({Plane({}, 7), Plane({}, 9)}), 0U);
}

TEST(TokenClasses, EveryFormComesBack) {
  const Classes window = {9, 9, 9, kDropped, kDropped, kDropped, kDropped, 6, 6, 6};
  EXPECT_EQ(ExpectRoundTrip({Plane(window), Plane(window), Plane({}, 10)}), 1U + 6 + 1 + 1);
  // The plane before has more tokens; its last ones count.
  EXPECT_EQ(ExpectRoundTrip({Plane(window), Plane({kDropped, 6, 6, 6})}), 1U + 6 + 1);
  // Two classes alternate: a bit each.
  Classes scattered(64);
  for (std::size_t i = 0; i < scattered.size(); ++i) scattered[i] = i % 2 == 0 ? 6 : kDropped;
  EXPECT_EQ(ExpectRoundTrip({Plane(scattered)}), 1U + 1 + 2 + 8);
}

TEST(TokenClasses, RandomClassesComeBack) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<SymbolPlane> planes;
    const unsigned kinds = 1 + random() % (kTokenClasses + 1);
    for (unsigned p = 0; p < 1 + random() % 4; ++p) {
      if (p > 0 && random() % 3 == 0) {
        planes.push_back(planes.back());
        continue;
      }
      Classes classes(random() % 70);
      for (auto& value : classes) {
        const auto drawn = static_cast<std::uint8_t>(random() % kinds);
        value = drawn == kTokenClasses ? kDropped : drawn;
      }
      planes.push_back(Plane(classes));
    }
    ExpectRoundTrip(planes);
  }
}

TEST(TokenClasses, HostileBytesAreRefused) {
  const auto bytes = [](std::initializer_list<int> values) {
    std::vector<std::byte> made;
    for (const int value : values) made.push_back(static_cast<std::byte>(value));
    return made;
  };
  std::vector<SymbolPlane> planes = {Plane({}, 5), Plane({}, 8)};
  for (const auto& hostile : {
           bytes({4, 0}),                    // unknown form
           bytes({1, 0}),                    // nothing before
           bytes({0, 1}),                    // the plane before is shorter
           bytes({2, 13, 5, 0}),             // unknown class
           bytes({2, 6, 0, 0}),              // empty stretch
           bytes({2, 6, 6, 0}),              // too long
           bytes({2, 6, 4}),                 // too short
           bytes({2, 6, 0xFF, 0xFF, 0xFF}),  // no end of a length
           bytes({3, 1, 6, 0, 0}),           // one class needs no index
           bytes({3, 15, 6, 0, 0}),
           bytes({3, 2, 7, 6, 0, 0}),              // not ascending
           bytes({3, 2, 6, 6, 0, 0}),              // twice
           bytes({3, 2, 6, 200, 0, 0}),            // unknown class
           bytes({3, 3, 5, 6, 7, 0xFF}),           // truncated
           bytes({3, 3, 5, 6, 7, 0xFF, 0xFF, 0}),  // index 3 of 3
           bytes({0}),
           bytes({0, 0, 0}),
       }) {
    const auto status = Read(hostile, planes);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  }
  EXPECT_TRUE(Read(bytes({0, 0}), planes));
}

}  // namespace
}  // namespace kvserve
