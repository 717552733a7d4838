#include "evaluation/answer_text.h"

#include <gtest/gtest.h>

namespace kvserve {
namespace {

TEST(AnswerText, NormalizationDropsCasePunctuationAndArticles) {
  EXPECT_EQ(NormalizeAnswer(" The  Norman, conquest!\n"), "norman conquest");
  EXPECT_EQ(NormalizeAnswer("an A. the"), "");
  EXPECT_EQ(NormalizeAnswer("theatre caf\xC3\xA9"), "theatre caf\xC3\xA9");
}

TEST(AnswerText, TokenF1) {
  EXPECT_DOUBLE_EQ(TokenF1("the Steam engine", "steam engine."), 1.0);
  EXPECT_DOUBLE_EQ(TokenF1("steam", "steam engine"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(TokenF1("engine engine engine", "engine"), 0.5);  // each word counts once
  EXPECT_DOUBLE_EQ(TokenF1("water", "steam"), 0.0);
  EXPECT_DOUBLE_EQ(TokenF1("", "steam"), 0.0);
  EXPECT_DOUBLE_EQ(TokenF1("the", ""), 1.0);
  const std::string answers[] = {"horse", "steam engine"};
  EXPECT_DOUBLE_EQ(BestTokenF1("a steam engine", answers), 1.0);
  EXPECT_TRUE(AnyExactMatch("A steam engine.", answers));
  EXPECT_FALSE(AnyExactMatch("two steam engines", answers));
  EXPECT_DOUBLE_EQ(BestTokenF1("x", {}), 0.0);
}

TEST(AnswerText, AnswersAreFoundAsWholeWords) {
  EXPECT_TRUE(ContainsAnswer("The key is 41873.", "41873"));
  EXPECT_TRUE(ContainsAnswer("ROBOT", "robot"));
  EXPECT_TRUE(ContainsAnswer("\"b3fea119-825a\"", "b3fea119-825a"));
  EXPECT_TRUE(ContainsAnswer("141873 and 41873", "41873"));  // the second place counts
  EXPECT_FALSE(ContainsAnswer("418730", "41873"));
  EXPECT_FALSE(ContainsAnswer("141873", "41873"));
  EXPECT_FALSE(ContainsAnswer("4187", "41873"));
  EXPECT_FALSE(ContainsAnswer("anything", ""));
}

TEST(AnswerText, EditSimilarity) {
  EXPECT_DOUBLE_EQ(EditSimilarity("kitten", "sitting"), 1 - 3.0 / 7);
  EXPECT_DOUBLE_EQ(EditSimilarity("", "abc"), 0.0);
  EXPECT_DOUBLE_EQ(EditSimilarity("", ""), 1.0);
  EXPECT_DOUBLE_EQ(EditSimilarity("return x", "return x"), 1.0);
}

TEST(AnswerText, TrimKeepsTheMiddle) {
  EXPECT_EQ(Trim("\n a b \t"), "a b");
  EXPECT_EQ(Trim(" \n"), "");
}

}  // namespace
}  // namespace kvserve
