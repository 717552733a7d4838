#include "evaluation/capture_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/testing/fake_engine.h"
#include "evaluation/reference_file.h"

namespace kvserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using FakeEngine = ::kvserve::testing::FakeEngine;
namespace fs = std::filesystem;

class CaptureStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    prompt_.context = {'c', 'o', 'n', 't', 'e', 'x', 't'};
    Probe& probe = prompt_.probes.emplace_back();
    probe.lead = {'l'};
    probe.answer = {'a', 'b'};
    probe.generate_tokens = 4;
    ASSERT_TRUE(CaptureContext(engine_, prompt_.context, 4, kv_));
    auto references = ReferencesOf(engine_, prompt_, kv_);
    ASSERT_TRUE(references);
    references_ = std::move(*references);
  }
  void TearDown() override { fs::remove_all(folder_); }

  CaptureStore Open(std::string engine = "e1") {
    auto store = CaptureStore::Open(folder_,
                                    {.model = engine_.info().fingerprint,
                                     .geometry = engine_.info().geometry,
                                     .vocabulary = engine_.info().vocabulary,
                                     .chunk_tokens = 4,
                                     .engine = std::move(engine)},
                                    [this](const std::string& text) { notices_.push_back(text); });
    EXPECT_TRUE(store);
    return std::move(*store);
  }
  fs::path FileOf(const std::string& ending) {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ending) return entry.path();
    }
    return {};
  }

  const std::string folder_ = ::testing::TempDir() + "capture_store_" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name();
  FakeEngine engine_{{}};
  EvaluationPrompt prompt_;
  KvBuffer kv_;
  std::vector<ProbeReference> references_;
  std::vector<std::string> notices_;
};

TEST_F(CaptureStoreTest, GivesBackWhatWasSaved) {
  CaptureStore store = Open();
  KvBuffer read;
  EXPECT_FALSE(store.LoadKv(prompt_, read));
  EXPECT_FALSE(store.LoadReferences(prompt_));
  ASSERT_TRUE(store.SaveKv(prompt_, kv_));
  ASSERT_TRUE(store.SaveReferences(prompt_, references_));
  CaptureStore again = Open();
  ASSERT_TRUE(again.LoadKv(prompt_, read));
  // The model's answers hang on every byte of the KV.
  const auto said = ReferencesOf(engine_, prompt_, read);
  ASSERT_TRUE(said);
  EXPECT_EQ(FormatReferences(*said), FormatReferences(references_));
  const auto loaded = again.LoadReferences(prompt_);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(FormatReferences(*loaded), FormatReferences(references_));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(CaptureStoreTest, WhatEntriesDependOnIsTheirName) {
  CaptureStore store = Open();
  ASSERT_TRUE(store.SaveKv(prompt_, kv_));
  ASSERT_TRUE(store.SaveReferences(prompt_, references_));
  KvBuffer read;
  EXPECT_FALSE(Open("e2").LoadKv(prompt_, read));
  EvaluationPrompt other = prompt_;
  other.probes[0].answer.pop_back();
  EXPECT_TRUE(store.LoadKv(other, read));  // the same context
  EXPECT_FALSE(store.LoadReferences(other));
  other.context.pop_back();
  EXPECT_FALSE(store.LoadKv(other, read));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(CaptureStoreTest, DamagedFilesCountAsMissingAndAreTold) {
  CaptureStore store = Open();
  ASSERT_TRUE(store.SaveKv(prompt_, kv_));
  ASSERT_TRUE(store.SaveReferences(prompt_, references_));
  for (const char* ending : {".kvs", ".ref"}) {
    const fs::path path = FileOf(ending);
    const auto size = fs::file_size(path);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2));
    file.put('\x5A');
    file.put('\xA5');
    file.close();
  }
  KvBuffer read;
  EXPECT_FALSE(store.LoadKv(prompt_, read));
  EXPECT_FALSE(store.LoadReferences(prompt_));
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("anew"), HasSubstr("wrong checksum")));
  fs::resize_file(FileOf(".ref"), 10);
  EXPECT_FALSE(store.LoadReferences(prompt_));
  // Saving again mends it.
  ASSERT_TRUE(store.SaveKv(prompt_, kv_));
  EXPECT_TRUE(store.LoadKv(prompt_, read));
}

TEST_F(CaptureStoreTest, ReferencesOfAnyLengthAreRefusedWhenCut) {
  const auto bytes = FormatReferences(references_);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseReferences(std::span(bytes).first(size), 1, FakeEngine::kVocabulary));
  }
  EXPECT_TRUE(ParseReferences(bytes, 1, FakeEngine::kVocabulary));
  EXPECT_FALSE(ParseReferences(bytes, 2, FakeEngine::kVocabulary));
  auto newer = bytes;
  newer[8] = std::byte{9};
  EXPECT_EQ(ParseReferences(newer, 1, FakeEngine::kVocabulary).error().code,
            ErrorCode::kUnsupported);
}

TEST_F(CaptureStoreTest, AFileInItsPlaceIsRefused) {
  std::ofstream(folder_) << "x";
  const auto store = CaptureStore::Open(folder_, {}, {});
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(store.error().message, HasSubstr(folder_));
}

}  // namespace
}  // namespace kvserve
