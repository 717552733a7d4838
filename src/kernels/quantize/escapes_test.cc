#include "kernels/quantize/escapes.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace kvserve {
namespace {

std::vector<std::byte> Written(const std::vector<Escape>& escapes) {
  Arena arena;
  EscapeList list;
  for (const Escape& escape : escapes) list.Add(escape, arena);
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  list.Write(writer);
  return bytes;
}

bool Refused(const std::vector<std::byte>& bytes, std::uint64_t values) {
  Arena arena;
  ByteReader reader(bytes);
  return !ReadEscapes(values, arena, reader).has_value();
}

TEST(Escapes, AreAppliedToAnyPartOfThePlane) {
  std::vector<Escape> escapes;
  for (std::uint64_t i = 0; i < 200; ++i) escapes.push_back({i * i, static_cast<float>(i) + 0.5F});
  const auto bytes = Written(escapes);
  Arena arena;
  ByteReader reader(bytes);
  const auto read = ReadEscapes(199 * 199 + 1, arena, reader);
  ASSERT_TRUE(read);
  EXPECT_EQ(reader.remaining(), 0U);
  for (const std::size_t part : {1U, 7U, 1000U, 40000U}) {
    std::vector<float> values(40000, -1.0F);
    for (std::size_t at = 0; at < values.size(); at += part) {
      ApplyEscapes(*read, at, std::span(values).subspan(at, std::min(part, values.size() - at)));
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool escaped = next < escapes.size() && escapes[next].index == i;
      ASSERT_EQ(values[i], escaped ? escapes[next].value : -1.0F) << i;
      next += escaped ? 1 : 0;
    }
  }
}

TEST(Escapes, HostileBytesAreRefused) {
  const auto good = Written({{3, 1.0F}, {9, 2.0F}});
  EXPECT_FALSE(Refused(good, 10));
  EXPECT_TRUE(Refused(good, 9));
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_TRUE(Refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}, 10));
  }
  EXPECT_TRUE(Refused(Written({{3, std::numeric_limits<float>::infinity()}}), 10));
  EXPECT_TRUE(Refused(Written({{3, std::numeric_limits<float>::quiet_NaN()}}), 10));
  std::vector<std::byte> many(9, std::byte{0xFF});
  many.push_back(std::byte{1});
  EXPECT_TRUE(Refused(many, UINT64_MAX));
}

}  // namespace
}  // namespace kvserve
