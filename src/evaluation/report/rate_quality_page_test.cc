#include "evaluation/report/rate_quality_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "evaluation/report/rate_quality_tables.h"
#include "evaluation/report/scatter_plot.h"

namespace kvserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kSeveral = R"({"model":"tiny <b>","machine":{"cpu":"Some & CPU"},
  "total":{"profile":"a|b"},
  "profiles":[
    {"profile":"a|b","n":3,"kl":0.01,"kl_ci95":[0.005,0.02],"compression_ratio":4.5,"wire_bytes":10,
     "top1_agreement":0.95,"retrieval":{"n":24,"baseline":1.0,"value":0.75,"value_ci95":[0.5,0.9],
     "weak_baseline":false},
     "contexts":[{"context_tokens":1024,"total":{"kl":0.01,"compression_ratio":4}},
                 {"context_tokens":4096,"total":{"kl":0.02,"compression_ratio":5}}]},
    {"profile":"worse","n":3,"kl":0.02,"compression_ratio":4.0},
    {"profile":"none","n":3,"kl":0,"compression_ratio":1.0}]})";

EvaluationDocument Parse(const char* text) {
  auto document = ParseEvaluationDocument(text, "run.json");
  EXPECT_TRUE(document) << (document ? "" : document.error().message);
  return document.value_or(EvaluationDocument{});
}

TEST(RateQualityPage, IsEscapedAndComplete) {
  const EvaluationDocument documents[] = {Parse(kSeveral)};
  const std::string page = RateQualityPage(documents);
  EXPECT_THAT(page, HasSubstr("tiny &lt;b&gt;"));
  EXPECT_THAT(page, HasSubstr("Some &amp; CPU"));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
  EXPECT_THAT(page, HasSubstr("0.01000 (0.00500-0.02000)"));
  EXPECT_THAT(page, HasSubstr("0.75 (0.50-0.90) of 1.00"));
  EXPECT_THAT(page, HasSubstr("By context length"));
  EXPECT_THAT(page, HasSubstr("</html>"));
  for (const char* other_file : {"<script", "http:", "https:", "src=", "href=", "nan"}) {
    EXPECT_THAT(page, Not(HasSubstr(other_file)));
  }
}

TEST(RateQualityPage, MarkdownIsATable) {
  const EvaluationDocument documents[] = {Parse(kSeveral)};
  const std::string text = RateQualityMarkdown(documents);
  EXPECT_THAT(text, HasSubstr("| **`a\\|b`** | 4.50 |"));
  EXPECT_THAT(text, HasSubstr("| `worse` | 4.00 |"));
  EXPECT_THAT(text, HasSubstr("| **`none`** | 1.00 |"));
  EXPECT_THAT(text, HasSubstr("| `a\\|b` | 4096 |"));
}

TEST(RateQualityPage, ProfilesAreComparedPromptByPrompt) {
  const EvaluationDocument document = Parse(R"({"total":{"profile":"a"},"profiles":[
    {"profile":"a","n":3,"kl":0.02,"kl_by_prompt":[0.01,0.02,0.03],"compression_ratio":4.0},
    {"profile":"better","n":3,"kl":0.01,"kl_by_prompt":[0.0,0.01,0.02],"compression_ratio":5.0},
    {"profile":"mixed","n":3,"kl":0.02,"kl_by_prompt":[0.03,0.02,0.01],"compression_ratio":8.0},
    {"profile":"other prompts","n":1,"kl":0.0,"kl_by_prompt":[0.0],"compression_ratio":9.0},
    {"profile":"old","n":3,"kl":0.0,"compression_ratio":9.0},
    {"profile":"odd","n":3,"kl":0.0,"kl_by_prompt":[0.0,"x",0.0],"compression_ratio":9.0}]})");
  const ReportTable table = PairedTable(document, "a");
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_TRUE(table.rows[0].member);
  EXPECT_THAT(table.rows[0].cells,
              ElementsAre("better", "0.800x", "0.500x", "-0.01000 (-0.01000--0.01000)", "3 of 3"));
  EXPECT_FALSE(table.rows[1].member);
  EXPECT_THAT(table.rows[1].cells[4], "1 of 3");
  EXPECT_TRUE(PairedTable(document, "b").rows.empty());
  EXPECT_TRUE(PairedTable(document, "old").rows.empty());
  const EvaluationDocument documents[] = {document};
  const std::string against[] = {"a"};
  EXPECT_THAT(RateQualityPage(documents, against), HasSubstr("against a"));
  EXPECT_THAT(RateQualityMarkdown(documents, against), HasSubstr("| **`better`** | 0.800x |"));
}

TEST(RateQualityPage, PlotsStandAlone) {
  const EvaluationDocument documents[] = {Parse(kSeveral)};
  const auto plots = RateQualityPlots(documents);
  ASSERT_EQ(plots.size(), 2U);
  EXPECT_EQ(plots[0].name, "tiny-b-kl.svg");
  EXPECT_EQ(plots[1].name, "tiny-b-retrieval.svg");
  for (const PlotFile& plot : plots) {
    EXPECT_THAT(plot.svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox="));
    EXPECT_THAT(plot.svg, HasSubstr("<style>"));
  }
}

TEST(RateQualityPage, ParetoMembersAreNotBeaten) {
  EXPECT_THAT(ParetoMembers(Parse(kSeveral).profiles), ElementsAre(true, false, true));
  std::vector<ReportedProfile> twins(2);
  EXPECT_THAT(ParetoMembers(twins), ElementsAre(true, true));
}

TEST(RateQualityPage, OneModelIsOneSection) {
  const char* again =
      R"({"model":"tiny <b>","total":{"profile":"worse","kl":0.015,"compression_ratio":4}})";
  const auto merged = MergeRuns({Parse(kSeveral), Parse(again), Parse(R"({"model":"other",
      "total":{"profile":"none","kl":0,"compression_ratio":1}})")});
  ASSERT_EQ(merged.size(), 2U);
  ASSERT_EQ(merged[0].profiles.size(), 3U);
  EXPECT_DOUBLE_EQ(merged[0].profiles[1].kl, 0.015);
}

TEST(RateQualityPage, RunsOfOtherPromptsStayApart) {
  const auto run = [](const std::string& profile, const std::string& digest) {
    return Parse((R"({"model":"m","prompts_digest":")" + digest + R"(","total":{"profile":")" +
                  profile + R"(","kl":0.1,"compression_ratio":2}})")
                     .c_str());
  };
  const auto merged = MergeRuns({run("a", "1"), run("b", "2"), run("c", "1")});
  ASSERT_EQ(merged.size(), 2U);
  EXPECT_EQ(merged[0].profiles.size(), 2U);
  EXPECT_EQ(merged[1].profiles[0].profile, "b");
  const std::string text = RateQualityMarkdown(merged);
  EXPECT_THAT(text, HasSubstr("### m\n"));
  EXPECT_THAT(text, HasSubstr("### m (2)\n"));
  EXPECT_EQ(RateQualityPlots(merged)[1].name, "m-2-kl.svg");
}

TEST(RateQualityPage, OtherDocumentsAreRefused) {
  for (const char* text : {"", "[]", "{}", R"({"total":3})", R"({"total":{"profile":3}})",
                           R"({"total":{"profile":"a"},"profiles":[]})",
                           // Without these figures a profile would look free of loss.
                           R"({"total":{"profile":"a","compression_ratio":4}})",
                           R"({"total":{"profile":"a","kl":"0.1","compression_ratio":4}})",
                           R"({"total":{"profile":"a","kl":0.1,"compression_ratio":0}})",
                           R"({"total":{"profile":"a"},"profiles":[{"profile":"a","kl":0.1}]})"}) {
    const auto document = ParseEvaluationDocument(text, "run.json");
    ASSERT_FALSE(document) << text;
    EXPECT_EQ(document.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(document.error().message, HasSubstr("run.json: "));
  }
}

TEST(ScatterPlot, DrawsWhatIsFinite) {
  ScatterPlot plot;
  plot.log_x = plot.log_y = true;
  plot.points = {{"zero", 4, 0, 0, 0, true},
                 {"bad", 4, std::numeric_limits<double>::quiet_NaN(), 0, 0, true},
                 {"no ratio", 0, 1, 1, 1, true},
                 {"\"quoted\"", 8, 0.1, 0.05, 0.2, false}};
  const std::string svg = ScatterSvg(plot);
  EXPECT_THAT(svg, HasSubstr(">zero</text>"));
  EXPECT_THAT(svg, HasSubstr("&quot;quoted&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("bad")));
  EXPECT_THAT(svg, Not(HasSubstr("no ratio")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(ScatterSvg({}), HasSubstr("</svg>"));
}

TEST(ScatterPlot, LongLabelsAreCutBetweenCharacters) {
  ScatterPlot plot;
  const std::string name = std::string(24, 'a') + "\u00e9\u00e9\u00e9";
  plot.points = {{name, 1, 0.5, 0.5, 0.5, true}};
  const std::string svg = ScatterSvg(plot);
  EXPECT_THAT(svg, HasSubstr(">" + std::string(24, 'a') + "\u2026</text>"));
  EXPECT_THAT(svg, HasSubstr("<title>" + name + ":"));
}

}  // namespace
}  // namespace kvserve
