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

TEST_F(RecordFile, UnknownTasksAreNamed) {
  const auto records = Read("{\"id\":\"a\",\"set\":\"s\",\"task\":\"poetry\",\"text\":\"?\"}");
  ASSERT_FALSE(records);
  EXPECT_EQ(records.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(records.error().message, HasSubstr("'poetry'"));
}

TEST_F(RecordFile, EveryTaskHasItsFields) {
  const auto records = Read(
      R"({"id":"1","set":"s","task":"qa","context":"c","question":"q","answers":["a","b"],"new":{}}
{"id":"2","set":"s","task":"conv_qa","context":"c","qas":[{"question":"q","answers":["a"]},)"
      R"({"question":"r","answers":["b"]}]}
{"id":"3","set":"s","task":"mc_prefix","prefixes":["x","y"],"continuation":"z","gold":1,"answers":["y"]}
{"id":"4","set":"s","task":"mc","question":"q","choices":["x","y"],"gold":0}
{"id":"5","set":"s","task":"math","context":"","question":"q","answers":["1"],"solution":"w"}
{"id":"6","set":"s","task":"kv_multi","context":"c","question":"q","answers":["a","b"]}
{"id":"7","set":"s","task":"prefix","text":"t"}
)");
  ASSERT_TRUE(records) << records.error().message;
  EXPECT_EQ((*records)[0].questions[0].answers.size(), 2U);
  EXPECT_EQ((*records)[1].questions[1].text, "r");
  EXPECT_EQ((*records)[2].prefixes[(*records)[2].gold], "y");
  EXPECT_EQ((*records)[3].choices.size(), 2U);
  EXPECT_EQ((*records)[4].solution, "w");
  EXPECT_EQ((*records)[5].task, Task::kRetrievalAll);
  EXPECT_EQ(PlainText((*records)[0]), "c\n\nq\na");
  EXPECT_EQ(PlainText((*records)[2]), "y z");
  EXPECT_EQ(PlainText((*records)[4]), "q\nw");
  EXPECT_FALSE(IsScored((*records)[6].task));
}

TEST_F(RecordFile, MissingFieldsAreNamed) {
  const std::pair<const char*, const char*> rows[] = {
      {R"("task":"qa","question":"q")", "'answers'"},
      {R"("task":"qa","answers":[])", "'answers'"},
      {R"("task":"qa","answers":[3])", "'answers'"},
      {R"("task":"qa","context":3,"answers":["a"])", "'context'"},
      {R"("task":"multi_qa","qas":[])", "'qas'"},
      {R"("task":"multi_qa","qas":["q"])", "'qas'"},
      {R"("task":"mc","question":"q","choices":["x"],"gold":1)", "'gold'"},
      {R"("task":"mc","question":"q","choices":["x"],"gold":-1)", "'gold'"},
      {R"("task":"mc_prefix","prefixes":["x"],"gold":0)", "'continuation'"},
      {R"("task":"math","question":"q","answers":["1"],"solution":[])", "'solution'"},
      {R"("set":"s")", "'task'"}};
  for (const auto& [fields, name] : rows) {
    const auto records = Read(std::string(R"({"id":"a","set":"s",)") + fields + "}");
    ASSERT_FALSE(records) << fields;
    EXPECT_EQ(records.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(records.error().message, HasSubstr(name));
    EXPECT_THAT(records.error().message, HasSubstr(":1:"));
  }
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
