#include "runtime/text_stream.h"

#include <gtest/gtest.h>

namespace kvserve {
namespace {

TEST(TextStream, HoldsBackHalfACharacter) {
  TextStream stream({});
  EXPECT_EQ(stream.Add("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.Add("\x98"), "");
  EXPECT_EQ(stream.Add("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, ReplacesWhatCannotBeText) {
  const struct {
    std::string in;
    std::string out;
  } cases[] = {
      {"\xFFok", "\xEF\xBF\xBDok"},                                // never a lead byte
      {"\xC3(", "\xEF\xBF\xBD("},                                  // cut short
      {"\xED\xA0\x80.", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD."},  // surrogate
      {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},                    // overlong
      {"\xE2\x82", "\xEF\xBF\xBD"},                                // ends in the middle
  };
  for (const auto& test : cases) {
    TextStream stream({});
    std::string text;
    for (const char c : test.in) text += stream.Add({&c, 1});
    EXPECT_EQ(text + stream.Finish(), test.out);
  }
}

TEST(TextStream, StopsAcrossPiecesWithoutShowingTheStop) {
  TextStream stream({"END", "\n\n"});
  EXPECT_EQ(stream.Add("abcE"), "abc");
  EXPECT_EQ(stream.Add("N"), "");
  EXPECT_EQ(stream.Add("X"), "ENX");  // was no stop after all
  EXPECT_EQ(stream.Add("yEN"), "y");
  EXPECT_EQ(stream.Add("D and more"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.Add("more"), "");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, GivesOutAPossibleStopAtTheEnd) {
  TextStream stream({"END"});
  EXPECT_EQ(stream.Add("xEN"), "x");
  EXPECT_EQ(stream.Finish(), "EN");
  EXPECT_FALSE(stream.stopped());
}

TEST(TextStream, TakesTheEarliestStop) {
  TextStream stream({"later", "now"});
  EXPECT_EQ(stream.Add("go now and later"), "go ");
}

}  // namespace
}  // namespace kvserve
