#include "calibration/sensitivity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "pipeline/testing/chunk.h"
#include "tensorfile/safetensors.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

struct File {
  std::vector<std::pair<std::string, std::uint64_t>> tensors = {{"K.0", 8}, {"V.0", 6}};
  StringMap metadata = {{"kvserve.sensitivity", "1"},
                        {"context_tokens", "1536"},
                        {"scored_tokens", "384"},
                        {"rope_style", "halves"},
                        {"source", "four texts"}};
  // The entry that tells row from column, so that an order of channels can be read off.
  std::function<float(std::uint64_t, std::uint64_t)> value = [](std::uint64_t r, std::uint64_t c) {
    return static_cast<float>(r * c) + (r == c ? 1.0F : 0.0F);
  };

  [[nodiscard]] std::string Write() const {
    std::string path = ::testing::TempDir() + "sensitivity.safetensors";
    std::vector<TensorShape> shapes;
    for (const auto& [name, columns] : tensors) {
      shapes.push_back({name, DType::kFloat32, {columns, columns}});
    }
    auto writer = SafetensorsWriter::Create(path, shapes, metadata);
    EXPECT_TRUE(writer);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::uint64_t columns = tensors[i].second;
      std::vector<float> matrix;
      for (std::uint64_t at = 0; at < columns * columns; ++at) {
        matrix.push_back(value(at / columns, at % columns));
      }
      EXPECT_TRUE(writer->Write(i, 0, std::as_bytes(std::span(matrix))));
    }
    EXPECT_TRUE(writer->Commit());
    return path;
  }
};

// Two heads of 4 key and 3 value channels.
KvGeometry Geometry(RopeStyle style) {
  KvGeometry geometry = testing::MakeGeometry(DType::kFloat16, {{2, 4, 3}});
  geometry.layers[0].rope_style = style;
  geometry.layers[0].rope_theta = style == RopeStyle::kNone ? 0 : 1e4F;
  return geometry;
}

Error Refusal(const File& file, const KvGeometry& geometry) {
  const auto read = ReadSensitivity(file.Write(), geometry);
  EXPECT_FALSE(read);
  return read ? Error{} : read.error();
}

TEST(Sensitivity, ReadsPlanesAndMetadata) {
  const auto read = ReadSensitivity(File().Write(), Geometry(RopeStyle::kHalves));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->planes.size(), 2U);
  ASSERT_EQ(read->planes[0].size(), 64U);
  ASSERT_EQ(read->planes[1].size(), 36U);
  EXPECT_EQ(read->planes[0][3 * 8 + 5], 15.0F);
  EXPECT_EQ(read->planes[1][2 * 6 + 2], 5.0F);
  EXPECT_EQ(read->context_tokens, 1536U);
  EXPECT_EQ(read->scored_tokens, 384U);
  EXPECT_EQ(read->source, "four texts");
}

// An engine that pairs (0, 1), (2, 3) has channels 0, 2, 1, 3 of a file that pairs (0, 2), (1, 3).
TEST(Sensitivity, PutsKeysIntoTheEnginesOrderOfChannels) {
  constexpr std::size_t kFrom[] = {0, 2, 1, 3, 4, 6, 5, 7};
  const auto read = ReadSensitivity(File().Write(), Geometry(RopeStyle::kInterleaved));
  ASSERT_TRUE(read) << read.error().message;
  const File file;
  for (std::size_t r = 0; r < 8; ++r) {
    for (std::size_t c = 0; c < 8; ++c) {
      EXPECT_EQ(read->planes[0][r * 8 + c], file.value(kFrom[r], kFrom[c])) << r << " " << c;
    }
  }
  EXPECT_EQ(read->planes[1][1 * 6 + 2], 2.0F);  // values stay

  KvGeometry wide = testing::MakeGeometry(DType::kFloat16, {{1, 8, 6}});
  wide.layers[0].rope_style = RopeStyle::kHalves;
  wide.layers[0].rope_theta = 1e4F;
  File interleaved;
  interleaved.metadata["rope_style"] = "interleaved";
  const auto back = ReadSensitivity(interleaved.Write(), wide);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->planes[0][3 * 8 + 5], file.value(6, 3));  // channel 3 is 6, 5 is 3
}

TEST(Sensitivity, RefusesOtherModels) {
  const KvGeometry geometry = Geometry(RopeStyle::kHalves);
  File file;
  file.tensors.pop_back();
  EXPECT_THAT(Refusal(file, geometry).message, HasSubstr("no tensor V.0"));
  file.tensors = {{"K.0", 8}, {"V.0", 8}};
  Error error = Refusal(file, geometry);
  EXPECT_EQ(error.code, ErrorCode::kMismatch);
  EXPECT_THAT(error.message, HasSubstr("V.0 is not [6, 6]"));
  file.tensors = {{"K.0", 8}, {"K.1", 8}, {"V.0", 6}};
  error = Refusal(file, geometry);
  EXPECT_EQ(error.code, ErrorCode::kMismatch);
  EXPECT_THAT(error.message, HasSubstr("3 tensors"));
  error = Refusal(File(), Geometry(RopeStyle::kNone));
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("before RoPE"));
}

TEST(Sensitivity, RefusesMatricesThatAreNone) {
  const KvGeometry geometry = Geometry(RopeStyle::kHalves);
  File file;
  file.value = [](std::uint64_t r, std::uint64_t c) { return r > c ? 1.0F : 2.0F; };
  EXPECT_THAT(Refusal(file, geometry).message, HasSubstr("K.0: it is not symmetric"));
  file.value = [](std::uint64_t r, std::uint64_t c) { return r == 2 && c == 2 ? -1.0F : 0.0F; };
  EXPECT_THAT(Refusal(file, geometry).message, HasSubstr("negative"));
  file.value = [](std::uint64_t, std::uint64_t) { return std::numeric_limits<float>::infinity(); };
  EXPECT_THAT(Refusal(file, geometry).message, HasSubstr("not finite"));
}

TEST(Sensitivity, RefusesOtherFiles) {
  const KvGeometry geometry = Geometry(RopeStyle::kHalves);
  const auto with = [](const char* key, const char* value) {
    File file;
    if (value == nullptr) {
      file.metadata.erase(key);
    } else {
      file.metadata[key] = value;
    }
    return file;
  };
  EXPECT_THAT(Refusal(with("kvserve.sensitivity", nullptr), geometry).message,
              HasSubstr("lack 'kvserve.sensitivity'"));
  EXPECT_EQ(Refusal(with("kvserve.sensitivity", "2"), geometry).code, ErrorCode::kUnsupported);
  EXPECT_THAT(Refusal(with("context_tokens", "-3"), geometry).message, HasSubstr("'-3'"));
  EXPECT_THAT(Refusal(with("scored_tokens", "12x"), geometry).message, HasSubstr("'12x'"));
  EXPECT_THAT(Refusal(with("rope_style", "diagonal"), geometry).message, HasSubstr("'diagonal'"));
  EXPECT_FALSE(ReadSensitivity(::testing::TempDir() + "no-such-file", geometry));
}

}  // namespace
}  // namespace kvserve
