#include "evaluation/report/rate_quality_page.h"

#include <algorithm>
#include <cmath>

#include "evaluation/report/rate_quality_tables.h"
#include "evaluation/report/scatter_plot.h"

namespace kvserve {
namespace {

// Of plots, in the page and alone.
constexpr const char* kPlotStyle = R"(
svg { width: 100%; max-width: 760px; height: auto; font: 12px system-ui, sans-serif; }
svg .title { font-weight: 600; font-size: 14px; }
svg .grid { stroke: #e4e4e4; }
svg .interval { stroke: #9ab; }
svg .member { fill: #0b62a8; }
svg .other { fill: #fff; stroke: #777; }
svg .front { fill: none; stroke: #0b62a8; stroke-opacity: .4; }
svg .label { font-size: 11px; fill: #0b62a8; }
@media (prefers-color-scheme: dark) {
  svg text { fill: #ccc; } svg .grid { stroke: #333; } svg .other { fill: #16181b; }
  svg .label { fill: #6bb3ee; } svg .member { fill: #6bb3ee; } svg .front { stroke: #6bb3ee; }
}
)";

constexpr const char* kStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 75em; padding: 0 1em; }
.plots { display: flex; flex-wrap: wrap; gap: 1em; }
.plots > * { flex: 1 1 34em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { text-align: right; padding: .25em .7em; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; font-family: ui-monospace, monospace;
  white-space: normal; overflow-wrap: anywhere; min-width: 16em; }
tr.member td:first-child { font-weight: 700; color: #0b62a8; }
@media (prefers-color-scheme: dark) {
  body { background: #16181b; color: #ddd; }
  tr.member td:first-child { color: #6bb3ee; }
  th, td { border-color: #333; }
}
)";

std::string NameOf(const EvaluationDocument& document) {
  return document.model.empty() ? document.name : document.model;
}

// The decade below the lowest KL that is not 0.
double KlFloor(const EvaluationDocument& document) {
  double lowest = 1.0;
  for (const ReportedProfile& profile : document.profiles) {
    if (profile.kl > 0.0) lowest = std::min(lowest, profile.kl);
  }
  return std::pow(10.0, std::floor(std::log10(std::max(lowest, 1e-9))));
}

ScatterPlot KlPlot(const EvaluationDocument& document) {
  ScatterPlot plot;
  plot.title = "KL against compression ratio";
  plot.x_label = "compression ratio (raw bytes / wire bytes)";
  plot.y_label = "KL, nats per token";
  plot.log_x = plot.log_y = true;
  plot.y_floor = KlFloor(document);
  const std::vector<bool> members = ParetoMembers(document.profiles);
  for (std::size_t i = 0; i < document.profiles.size(); ++i) {
    const ReportedProfile& profile = document.profiles[i];
    plot.points.push_back({profile.profile, profile.compression_ratio, profile.kl,
                           profile.kl_ci95.low, profile.kl_ci95.high, members[i]});
  }
  return plot;
}

// Marked are the profiles that keep the most of all that compress as much.
ScatterPlot RetrievalPlot(const EvaluationDocument& document) {
  ScatterPlot plot;
  plot.title = "Retrieval against compression ratio";
  plot.x_label = "compression ratio (raw bytes / wire bytes)";
  plot.y_label = "share of answers found";
  plot.log_x = true;
  for (const ReportedProfile& profile : document.profiles) {
    if (!profile.retrieval) continue;
    const bool beaten = std::ranges::any_of(document.profiles, [&](const ReportedProfile& other) {
      return other.retrieval && other.compression_ratio > profile.compression_ratio &&
             other.retrieval->value >= profile.retrieval->value;
    });
    plot.points.push_back({profile.profile, profile.compression_ratio, profile.retrieval->value,
                           profile.retrieval->value_ci95.low, profile.retrieval->value_ci95.high,
                           !beaten});
  }
  return plot;
}

std::string HtmlTable(const ReportTable& table) {
  std::string html = "<div class=\"scroll\"><table>\n<tr>";
  for (const std::string& cell : table.heading) html += "<th>" + EscapeMarkup(cell) + "</th>";
  html += "</tr>\n";
  for (const ReportRow& row : table.rows) {
    html += row.member ? "<tr class=\"member\">" : "<tr>";
    for (const std::string& cell : row.cells) html += "<td>" + EscapeMarkup(cell) + "</td>";
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string Section(const EvaluationDocument& document, std::span<const std::string> against) {
  std::string html = "<h2>" + EscapeMarkup(NameOf(document)) + "</h2>\n<div class=\"plots\">\n" +
                     ScatterSvg(KlPlot(document));
  const ScatterPlot retrieval = RetrievalPlot(document);
  if (!retrieval.points.empty()) html += ScatterSvg(retrieval);
  html += "</div>\n" + HtmlTable(ProfileTable(document));
  const ReportTable contexts = ContextTable(document);
  if (!contexts.rows.empty()) html += "<h3>By context length</h3>\n" + HtmlTable(contexts);
  for (const std::string& profile : against) {
    const ReportTable paired = PairedTable(document, profile);
    if (!paired.rows.empty()) html += "<h3>In pairs</h3>\n" + HtmlTable(paired);
  }
  if (!document.machine.empty()) {
    html += "<p>Measured on " + EscapeMarkup(document.machine) + ".</p>\n";
  }
  return html;
}

// In a file of its own.
std::string Alone(const ScatterPlot& plot) {
  std::string svg = ScatterSvg(plot);
  svg.insert(svg.find('>') + 1, "<style>" + std::string(kPlotStyle) + "</style>\n");
  svg.insert(svg.find(' '), " xmlns=\"http://www.w3.org/2000/svg\"");
  return svg;
}

// Small letters and digits, all else as single hyphens.
std::string FileName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool capital = c >= 'A' && c <= 'Z';
    const bool kept = capital || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (kept) {
      name += capital ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "model" : name;
}

// A pipe would end the cell, a backquote the code.
std::string MarkdownCell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|' || c == '\\' || c == '<') cell += '\\';
    cell += c == '\n' || c == '\r' || c == '`' ? ' ' : c;
  }
  return cell;
}

// In code only a pipe needs a backslash.
std::string MarkdownCode(const std::string& text) {
  std::string cell = "`";
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c == '\n' || c == '\r' || c == '`' ? ' ' : c;
  }
  return cell + "`";
}

std::string MarkdownTable(const ReportTable& table) {
  std::string text = "|";
  std::string rule = "|";
  for (std::size_t i = 0; i < table.heading.size(); ++i) {
    text += " " + table.heading[i] + " |";
    rule += i == 0 ? "---|" : "---:|";
  }
  text += "\n" + rule + "\n";
  for (const ReportRow& row : table.rows) {
    const std::string name = MarkdownCode(row.cells.front());
    text += "| " + (row.member ? "**" + name + "**" : name) + " |";
    for (std::size_t i = 1; i < row.cells.size(); ++i)
      text += " " + MarkdownCell(row.cells[i]) + " |";
    text += "\n";
  }
  return text;
}

}  // namespace

std::string RateQualityPage(std::span<const EvaluationDocument> documents,
                            std::span<const std::string> against) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>Rate and quality</title>\n<style>" +
      std::string(kPlotStyle) + kStyle +
      "</style>\n</head>\n<body>\n<h1>Rate and quality of KV compression</h1>\n"
      "<p>Filled points and bold names are Pareto members: no other profile of the model has both "
      "a higher ratio and a lower KL. Point at a point for its figures. Bars and figures in "
      "brackets are 95 % intervals over prompts; what lies below a plot, as a KL of 0, is drawn at "
      "its lower edge.</p>\n";
  for (const EvaluationDocument& document : documents) html += Section(document, against);
  return html + "</body>\n</html>\n";
}

std::vector<PlotFile> RateQualityPlots(std::span<const EvaluationDocument> documents) {
  std::vector<PlotFile> files;
  for (const EvaluationDocument& document : documents) {
    const std::string model = FileName(NameOf(document));
    files.push_back({model + "-kl.svg", Alone(KlPlot(document))});
    const ScatterPlot retrieval = RetrievalPlot(document);
    if (!retrieval.points.empty()) files.push_back({model + "-retrieval.svg", Alone(retrieval)});
  }
  return files;
}

std::string RateQualityMarkdown(std::span<const EvaluationDocument> documents,
                                std::span<const std::string> against) {
  std::string text;
  for (const EvaluationDocument& document : documents) {
    text += (text.empty() ? "### " : "\n### ") + MarkdownCell(NameOf(document)) + "\n\n" +
            MarkdownTable(ProfileTable(document));
    const ReportTable contexts = ContextTable(document);
    if (!contexts.rows.empty()) text += "\n" + MarkdownTable(contexts);
    for (const std::string& profile : against) {
      const ReportTable paired = PairedTable(document, profile);
      if (!paired.rows.empty()) text += "\n" + MarkdownTable(paired);
    }
  }
  return text;
}

}  // namespace kvserve
