// Damaged and forged files: an error code and a bounded allocation, never trust.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/hash.h"
#include "library/calibration_file.h"
#include "library/testing/sample_calibration.h"

namespace kvserve {
namespace {

using Bytes = std::vector<std::byte>;
using testing::SampleCalibration;

Bytes Sample() {
  return FormatCalibration(SampleCalibration()).value();
}

void ExpectRefused(const Bytes& bytes, ErrorCode code, const std::string& says) {
  const auto artefact = ParseCalibration(bytes);
  ASSERT_FALSE(artefact) << says;
  EXPECT_EQ(artefact.error().code, code) << artefact.error().message;
  EXPECT_NE(artefact.error().message.find(says), std::string::npos) << artefact.error().message;
}

template <typename T>
void Overwrite(Bytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

// Sets file size and header checksum, as a forger would.
void Seal(Bytes& bytes, std::uint32_t header_bytes) {
  Overwrite(bytes, 6, header_bytes);
  Overwrite(bytes, 18, std::uint64_t{bytes.size()});
  Overwrite(bytes, kCalibrationChecksumAt, std::uint64_t{0});
  Overwrite(bytes, kCalibrationChecksumAt, Hash64(std::span(bytes).first(header_bytes)));
}

struct ForgedSection {
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint8_t version = 1;
  Bytes bytes;
};

// A file with a sound header around any sections; geometry of one layer of 1 head, K 2, V 1.
Bytes Forge(const std::vector<ForgedSection>& sections) {
  Bytes bytes = Sample();
  bytes.resize(kCalibrationPrefixBytes);
  ByteWriter out(bytes);
  KvGeometry geometry;
  geometry.layers = {{.kv_heads = 1, .k_dim = 2, .v_dim = 1}};
  WriteCalibrationGeometry(geometry, out);
  out.PutBytes(Bytes(16));
  out.PutVarint(0);
  out.PutVarint(0);
  out.Put(static_cast<std::uint8_t>(sections.size()));
  for (const auto& section : sections) {
    out.Put(section.kind);
    out.Put(section.flags);
    out.Put(section.version);
    out.PutVarint(section.bytes.size());
    out.Put(Hash64(section.bytes, section.kind));
  }
  const auto header_bytes = static_cast<std::uint32_t>(bytes.size());
  for (const auto& section : sections) out.PutBytes(section.bytes);
  Seal(bytes, header_bytes);
  return bytes;
}

Bytes Section(const std::function<void(ByteWriter&)>& write) {
  Bytes bytes;
  ByteWriter out(bytes);
  write(out);
  return bytes;
}

TEST(CalibrationHostile, EveryCutIsAnError) {
  const Bytes sample = Sample();
  for (std::size_t size = 0; size < sample.size(); ++size) {
    const auto artefact = ParseCalibration(std::span(sample).first(size));
    ASSERT_FALSE(artefact) << size;
    EXPECT_EQ(artefact.error().code, ErrorCode::kCorruptData) << artefact.error().message;
  }
}

TEST(CalibrationHostile, EveryFlippedBitIsAnError) {
  Bytes bytes = Sample();
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(ParseCalibration(bytes)) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(CalibrationHostile, OtherVersionsAreNotDamage) {
  Bytes bytes = Sample();
  Overwrite(bytes, 4, std::uint16_t{2});
  ExpectRefused(bytes, ErrorCode::kUnsupported, "version 2");
  bytes = Sample();
  Overwrite(bytes, 10, std::uint64_t{1});
  ExpectRefused(bytes, ErrorCode::kUnsupported, "feature bits");
}

TEST(CalibrationHostile, UnknownSectionsAreSkippedUnlessRequired) {
  const Bytes any(5, std::byte{7});
  EXPECT_TRUE(ParseCalibration(Forge({})));
  EXPECT_TRUE(ParseCalibration(Forge({{200, 0, 1, any}})));
  ExpectRefused(Forge({{200, kSectionRequired, 1, any}}), ErrorCode::kUnsupported, "section 200");
  EXPECT_TRUE(ParseCalibration(Forge({{1, 0, 9, any}})));  // a later form of a known kind
  ExpectRefused(Forge({{1, kSectionRequired, 9, any}}), ErrorCode::kUnsupported,
                "section channel_statistics: version 9");
  ExpectRefused(Forge({{200, 2, 1, any}}), ErrorCode::kCorruptData, "unknown flags");
  ExpectRefused(Forge({{7, 0, 1, any}, {7, 0, 1, any}}), ErrorCode::kCorruptData, "ascend");
  ExpectRefused(Forge({{0, 0, 1, any}}), ErrorCode::kCorruptData, "ascend");
  Bytes wrong = Forge({{200, 0, 1, any}});
  wrong.back() ^= std::byte{1};
  ExpectRefused(wrong, ErrorCode::kCorruptData, "checksum");
}

TEST(CalibrationHostile, StatisticsAreChecked) {
  const auto statistics = [](std::uint8_t flag, float scale, std::size_t floats) {
    return Forge({{1, 0, 1, Section([&](ByteWriter& out) {
                     out.Put(flag);
                     for (std::size_t i = 0; i < floats; ++i) out.Put(i < 2 ? -1.0F : scale);
                     out.Put(std::uint8_t{0});
                   })}});
  };
  EXPECT_TRUE(ParseCalibration(statistics(1, 2.0F, 4)));
  ExpectRefused(statistics(1, 0.0F, 4), ErrorCode::kCorruptData, "scale of channel 0");
  ExpectRefused(statistics(2, 2.0F, 4), ErrorCode::kCorruptData, "neither 0 nor 1");
  ExpectRefused(statistics(1, 2.0F, 3), ErrorCode::kCorruptData, "truncated");
  ExpectRefused(statistics(1, 2.0F, 5), ErrorCode::kCorruptData, "section channel_statistics");
}

TEST(CalibrationHostile, EntropyClassesAreChecked) {
  const auto classes = [](std::uint64_t alphabet, std::uint64_t count, std::uint16_t first) {
    return Forge({{2, 0, 1, Section([&](ByteWriter& out) {
                     out.PutVarint(1);
                     out.PutVarint(alphabet);
                     out.PutVarint(count);
                     out.Put(first);
                     out.Put(std::uint16_t{2048});
                   })}});
  };
  EXPECT_TRUE(ParseCalibration(classes(2, 1, 2048)));
  ExpectRefused(classes(2, 1, 2047), ErrorCode::kCorruptData, "sum to 4096");
  ExpectRefused(classes(1, 1, 2048), ErrorCode::kCorruptData, "outside 2..256");
  ExpectRefused(classes(257, 1, 2048), ErrorCode::kCorruptData, "outside 2..256");
  ExpectRefused(classes(2, 65, 2048), ErrorCode::kCorruptData, "outside 1..64");
  ExpectRefused(classes(2, 0, 2048), ErrorCode::kCorruptData, "outside 1..64");
  ExpectRefused(classes(3, 1, 2048), ErrorCode::kCorruptData, "truncated");
}

// A header that states the largest shapes costs no memory before their values are there.
TEST(CalibrationHostile, StatedShapesAreNotAllocated) {
  Bytes bytes = Sample();
  bytes.resize(kCalibrationPrefixBytes);
  ByteWriter out(bytes);
  KvGeometry geometry;
  geometry.layers.assign(kMaxLayers, {.kv_heads = kMaxHeads, .k_dim = kMaxDim, .v_dim = kMaxDim});
  WriteCalibrationGeometry(geometry, out);
  out.PutBytes(Bytes(16));
  out.PutVarint(0);
  out.PutVarint(0);
  out.Put(std::uint8_t{1});
  const Bytes present(1, std::byte{1});
  out.Put(std::uint8_t{1});
  out.Put(std::uint8_t{0});
  out.Put(std::uint8_t{1});
  out.PutVarint(present.size());
  out.Put(Hash64(present, 1));
  const auto header_bytes = static_cast<std::uint32_t>(bytes.size());
  out.PutBytes(present);
  Seal(bytes, header_bytes);
  ExpectRefused(bytes, ErrorCode::kCorruptData, "truncated");
}

}  // namespace
}  // namespace kvserve
