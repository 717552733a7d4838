#include "evaluation/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

namespace kvserve {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGood =
    "{\"id\":\"s/1\",\"set\":\"s\",\"task\":\"lm\",\"title\":\"x\",\"text\":\"caf\\u00e9\"}\n\n"
    "{\"id\":\"s/2\",\"set\":\"s\",\"task\":\"lm\",\"text\":\"two\"}";

class RecordFile : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  Result<std::vector<Record>> Read(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return ReadRecords(path_);
  }
  std::string path_ = ::testing::TempDir() + "records_" +
                      ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
};

TEST_F(RecordFile, PlainAndGzippedAreTheSame) {
  const auto plain = Read(kGood);
  ASSERT_TRUE(plain) << plain.error().message;
  ASSERT_EQ(plain->size(), 2U);
  EXPECT_EQ((*plain)[0].text, "caf\xC3\xA9");
  EXPECT_EQ((*plain)[1].id, "s/2");
  gzFile file = gzopen(path_.c_str(), "wb");
  gzputs(file, kGood);
  gzclose(file);
  const auto zipped = ReadRecords(path_);
  ASSERT_TRUE(zipped) << zipped.error().message;
  EXPECT_EQ((*zipped)[0].text, (*plain)[0].text);
}

TEST_F(RecordFile, OtherTasksAreNamed) {
  const auto records = Read("{\"id\":\"a\",\"set\":\"squad\",\"task\":\"qa\",\"question\":\"?\"}");
  ASSERT_FALSE(records);
  EXPECT_EQ(records.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(records.error().message, HasSubstr("'qa'"));
}

TEST_F(RecordFile, FaultsNameTheLine) {
  for (const char* line : {"{", "[1]", "{\"id\":3}", "{\"id\":\"a\",\"set\":\"s\",\"task\":\"lm\"}",
                           "{\"id\":\"\xFF\"}"}) {
    const auto records = Read(std::string(kGood) + "\n" + line + "\n");
    ASSERT_FALSE(records) << line;
    EXPECT_EQ(records.error().code, ErrorCode::kBadInput) << line;
    EXPECT_THAT(records.error().message, HasSubstr(":4")) << line;
  }
  EXPECT_EQ(Read("").error().code, ErrorCode::kBadInput);
  EXPECT_EQ(ReadRecords("/nonexistent").error().code, ErrorCode::kBadInput);
}

TEST_F(RecordFile, DamagedArchivesAreRefused) {
  gzFile file = gzopen(path_.c_str(), "wb");
  for (int i = 0; i < 200; ++i) gzprintf(file, "{\"id\":\"%d\"}\n", i * i);
  gzclose(file);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  const auto records = ReadRecords(path_);
  ASSERT_FALSE(records);
  EXPECT_THAT(records.error().message, HasSubstr("damaged"));
}

}  // namespace
}  // namespace kvserve
