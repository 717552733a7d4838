// kvserve report: results of evaluate as one page, or as Markdown tables.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/try.h"
#include "command.h"
#include "evaluation/report/rate_quality_page.h"
#include "evaluation/report/rate_quality_tables.h"
#include "output_argument.h"
#include "tensorfile/input_file.h"
#include "tensorfile/output_file.h"

namespace kvserve::tool {
namespace {

constexpr std::uint64_t kMaxDocumentBytes = std::uint64_t{64} << 20;

struct Arguments {
  std::vector<std::string> documents;
  std::string output;
  std::string plots;  // folder
  std::vector<std::string> against;
  bool markdown = false;
};

Status WriteText(const std::string& path, const std::string& text) {
  KVSERVE_ASSIGN(OutputFile file, OutputFile::Create(path));
  KVSERVE_TRY(file.Append(std::as_bytes(std::span(text))));
  return file.Commit();
}

Status CheckAgainst(const std::vector<EvaluationDocument>& documents,
                    const std::vector<std::string>& against) {
  for (const std::string& profile : against) {
    const auto knows = [&](const EvaluationDocument& document) {
      return !PairedTable(document, profile).rows.empty();
    };
    if (std::ranges::any_of(documents, knows)) continue;
    return MakeError(ErrorCode::kBadInput, "--against " + profile +
                                               ": no document has it beside others on the same "
                                               "prompts");
  }
  return {};
}

Status RunReport(const Arguments& arguments, const Invocation& invocation) {
  if (arguments.output.empty() && arguments.plots.empty() && !arguments.markdown) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "nothing to write: -o names the page, --plots a folder, --markdown prints "
                     "tables");
  }
  if (arguments.markdown && invocation.json) {
    return MakeError(ErrorCode::kInvalidArgument, "--markdown or --json: both go to stdout");
  }
  for (const std::string& path : arguments.documents) {
    KVSERVE_TRY(CheckOutputIsNoInput(arguments.output, {path}));
  }
  std::vector<EvaluationDocument> documents;
  for (const std::string& path : arguments.documents) {
    KVSERVE_ASSIGN(const auto bytes, ReadFile(path, kMaxDocumentBytes));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    KVSERVE_ASSIGN(documents.emplace_back(), ParseEvaluationDocument(text, path));
  }
  documents = MergeRuns(std::move(documents));
  KVSERVE_TRY(CheckAgainst(documents, arguments.against));
  std::size_t profiles = 0;
  for (const EvaluationDocument& document : documents) profiles += document.profiles.size();
  if (!arguments.output.empty()) {
    KVSERVE_TRY(WriteText(arguments.output, RateQualityPage(documents, arguments.against)));
  }
  if (!arguments.plots.empty()) {
    for (const PlotFile& plot : RateQualityPlots(documents)) {
      KVSERVE_TRY(WriteText(arguments.plots + "/" + plot.name, plot.svg));
    }
  }
  if (invocation.json) {
    PrintJson(invocation, {{"documents", arguments.documents.size()},
                           {"models", documents.size()},
                           {"profiles", profiles},
                           {"output", arguments.output}});
  } else if (arguments.markdown) {
    std::printf("%s", RateQualityMarkdown(documents, arguments.against).c_str());
  }
  return {};
}

}  // namespace

void AddReport(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command =
      *app.add_subcommand("report", "Show results of evaluate as a page with plots");
  command.add_option("documents", arguments->documents, "Outputs of evaluate --json")->required();
  command.add_option("-o,--output", arguments->output, "Page to write (.html)");
  command.add_option("--plots", arguments->plots, "Folder to write each plot to (.svg)")
      ->check(CLI::ExistingDirectory);
  command
      .add_option("--against", arguments->against,
                  "Profile to compare all others with, prompt by prompt; may be repeated")
      ->expected(1)
      ->take_all();
  command.add_flag("--markdown", arguments->markdown, "Print Markdown tables");
  AddJsonFlag(command, invocation);
  command.footer(
      "Results of one model on the same prompts are shown together, others in sections of their "
      "own.\n"
      "Examples:\n"
      "  kvserve report smollm2.json gemma.json -o report.html\n"
      "  kvserve report smollm2.json --markdown --against published");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunReport(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
