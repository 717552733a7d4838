#include "tensorfile/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tensorfile/testing/raw_file.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

TEST(Safetensors, ReturnsWhatWasWritten) {
  const TemporaryPath path("round-trip.safetensors");
  const TensorShape shapes[] = {{"a", DType::kBFloat16, {2, 3}},
                                {"empty", DType::kFloat32, {0, 4}}};
  auto writer = SafetensorsWriter::Create(path.str(), shapes, {{"key", "\"value\"\n"}});
  ASSERT_TRUE(writer) << writer.error().message;
  const std::uint16_t values[] = {1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(values));
  ASSERT_TRUE(writer->Write(0, 4, bytes.subspan(4)));  // pieces in any order
  ASSERT_TRUE(writer->Write(0, 0, bytes.first(4)));
  EXPECT_FALSE(writer->Write(0, 8, bytes));
  EXPECT_FALSE(writer->Write(1, 0, bytes.first(1)));
  ASSERT_TRUE(writer->Commit());

  const auto reader = SafetensorsReader::Open(path.str());
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->metadata().at("key"), "\"value\"\n");
  const TensorInfo* a = reader->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(a->offset % 8, 0U);
  std::uint16_t read[6] = {};
  ASSERT_TRUE(reader->Read(*a, 0, std::as_writable_bytes(std::span(read))));
  EXPECT_THAT(read, ::testing::ElementsAreArray(values));
  EXPECT_EQ(reader->Read(*a, 2, std::as_writable_bytes(std::span(read))).error().code,
            ErrorCode::kBadInput);
  EXPECT_EQ(reader->Find("empty")->bytes, 0U);
  EXPECT_EQ(reader->Find("other"), nullptr);
}

struct HostileHeader {
  const char* header;
  std::size_t data_bytes;
  const char* message;
};

class HostileHeaderTest : public ::testing::TestWithParam<HostileHeader> {};

TEST_P(HostileHeaderTest, IsRefusedWithItsReason) {
  const TemporaryPath path("hostile.safetensors");
  WriteRawSafetensors(path.str(), GetParam().header, GetParam().data_bytes);
  const auto reader = SafetensorsReader::Open(path.str());
  ASSERT_FALSE(reader);
  EXPECT_EQ(reader.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(reader.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(reader.error().message, HasSubstr(path.str()));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileHeaderTest,
    ::testing::Values(
        HostileHeader{"", 0, "not valid JSON"}, HostileHeader{"{", 0, "not valid JSON"},
        HostileHeader{"[]", 0, "not a JSON object"},
        HostileHeader{"{\"a\xff\":1}", 0, "not valid JSON"},
        HostileHeader{R"({"a":1})", 0, "does not have dtype, shape"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1]}})", 2, "does not have dtype, shape"},
        HostileHeader{R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,2]}})", 2,
                      "does not have dtype"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2],"extra":1}})", 2,
                      "does not have dtype"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[-1],"data_offsets":[0,2]}})", 2,
                      "does not have dtype"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1.5],"data_offsets":[0,2]}})", 2,
                      "does not have dtype"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0]}})", 2,
                      "does not have dtype"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[2,0]}})", 2,
                      "are not inside"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 2,
                      "are not inside the 2 data bytes"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,2]}})", 2,
                      "shape needs 4 bytes, data_offsets give 2"},
        HostileHeader{
            R"({"a":{"dtype":"F16","shape":[9223372036854775808,2],"data_offsets":[0,2]}})", 2,
            "larger than 64 bits"},
        HostileHeader{
            R"({"a":{"dtype":"F16","shape":[18446744073709551616],"data_offsets":[0,2]}})", 2,
            "does not have dtype"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,9223372036854775808]}})",
                      2, "are not inside"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})", 4,
                      "after a hole"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", 4,
                      "2 bytes after the last tensor"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
                      4, "inside the one before it"},
        HostileHeader{R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                      R"("a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})",
                      2, "names 'a' twice"},
        HostileHeader{R"({"__metadata__":{"a":1}})", 0, "is not a string"},
        HostileHeader{R"({"__metadata__":[]})", 0, "is not an object"}));

TEST(Safetensors, BoundsTheHeaderByTheFile) {
  const TemporaryPath path("length.safetensors");
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{1} << 63, UINT64_MAX, kMaxSafetensorsHeaderBytes + 1}) {
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    WriteRaw(path.str(), bytes + "{}");
    const auto reader = SafetensorsReader::Open(path.str());
    ASSERT_FALSE(reader);
    EXPECT_THAT(reader.error().message, HasSubstr("header length " + std::to_string(length)));
  }
  WriteRaw(path.str(), "1234567");
  EXPECT_THAT(SafetensorsReader::Open(path.str()).error().message, HasSubstr("too few"));
}

TEST(Safetensors, SurvivesDeepNesting) {
  const TemporaryPath path("deep.safetensors");
  WriteRawSafetensors(path.str(), std::string(1'000'000, '['), 0);
  EXPECT_EQ(SafetensorsReader::Open(path.str()).error().code, ErrorCode::kBadInput);
}

TEST(Safetensors, RefusesWhatIsNotARegularFile) {
  const TemporaryPath path("fifo");
  ASSERT_EQ(::mkfifo(path.str().c_str(), 0600), 0);
  EXPECT_THAT(SafetensorsReader::Open(path.str()).error().message, HasSubstr("not a regular file"));
  EXPECT_THAT(SafetensorsReader::Open("/nonexistent/x").error().message, HasSubstr("No such file"));
  EXPECT_EQ(OutputFile::Create(path.str()).error().code, ErrorCode::kInvalidArgument);
}

TEST(OutputFile, NeedsAName) {
  const auto file = OutputFile::Create("");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
}

TEST(OutputFile, AppearsOnlyWhenCommitted) {
  const TemporaryPath path("out");
  const std::byte bytes[3] = {};
  {
    auto file = OutputFile::Create(path.str());
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->Append(bytes));
    EXPECT_FALSE(InputFile::Open(path.str()));
  }
  EXPECT_FALSE(InputFile::Open(path.str()));
  auto file = OutputFile::Create(path.str());
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Append(bytes));
  ASSERT_TRUE(file->Append(bytes));
  ASSERT_TRUE(file->Commit());
  EXPECT_EQ(InputFile::Open(path.str())->size(), 6U);
}

TEST(OutputFile, ReplacesTheTargetOfALink) {
  const TemporaryPath target("target");
  const TemporaryPath link("link");
  WriteRaw(target.str(), "old");
  ASSERT_EQ(::symlink(target.str().c_str(), link.str().c_str()), 0);
  auto file = OutputFile::Create(link.str());
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Commit());
  EXPECT_EQ(InputFile::Open(target.str())->size(), 0U);
  struct stat status {};
  ASSERT_EQ(::lstat(link.str().c_str(), &status), 0);
  EXPECT_TRUE(S_ISLNK(status.st_mode));
}

}  // namespace
}  // namespace kvserve
