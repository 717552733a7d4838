#include "calibrate_summary.h"

#include <algorithm>
#include <cstdio>

#include "base/hash.h"
#include "table.h"
#include "transform_json.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

Json EntropyJson(const CalibrationArtefact::Contents& contents) {
  Json rows = Json::array();
  for (const EntropyClasses& classes : contents.entropy) {
    rows.push_back({{"alphabet", classes.alphabet}, {"classes", classes.frequencies.size()}});
  }
  return rows;
}

std::size_t Planes(const std::vector<KarhunenLoeve>& klt) {
  return static_cast<std::size_t>(
      std::ranges::count_if(klt, [](const auto& plane) { return plane.columns != 0; }));
}

std::size_t QueryLayers(const CalibrationArtefact::Contents& contents) {
  return static_cast<std::size_t>(std::ranges::count_if(
      contents.query_statistics, [](const auto& layer) { return layer.heads != 0; }));
}

Json SummaryJson(const CalibrateSummary& summary) {
  const auto& contents = summary.contents;
  Json data = Json::array();
  for (const CalibrationFile& file : summary.files) {
    data.push_back({{"path", file.path}, {"texts", file.texts.size()}, {"tokens", file.tokens}});
  }
  return {{"layers", contents.geometry.layers.size()},
          {"bytes", summary.bytes.size()},
          {"data", std::move(data)},
          {"seconds", summary.seconds},
          {"checksum", Hash128(summary.bytes).hex()},
          {"model", contents.model.empty() ? Json() : Json(contents.model.hex())},
          {"tokens", contents.tokens},
          {"entropy", EntropyJson(contents)},
          {"klt_planes",
           {{"heads", Planes(contents.klt_heads)}, {"joint", Planes(contents.klt_joint)}}},
          {"query_layers", QueryLayers(contents)},
          {"head_scores", contents.head_scores},  // [layer][kv_head]
          {"transform", TransformJson(contents)},
          {"left_out", summary.left_out}};
}

// From streaming to retrieval, head by head.
void PrintHeadScores(const std::vector<std::vector<float>>& scores) {
  if (scores.empty()) return;
  std::printf("\nhead scores: near 0 looks at the latest tokens, near 1 far back (retrieval)\n");
  std::size_t heads = 0;
  for (const auto& layer : scores) heads = std::max(heads, layer.size());
  std::vector<std::string> heading = {"layer"};
  for (std::size_t head = 0; head < heads; ++head)
    heading.push_back("head " + std::to_string(head));
  Table table(heading);
  for (std::size_t layer = 0; layer < scores.size(); ++layer) {
    std::vector<std::string> row = {std::to_string(layer)};
    for (const float score : scores[layer]) row.push_back(Fixed(score, 3));
    row.resize(heading.size(), "-");
    table.Add(std::move(row));
  }
  table.Print();
}

void PrintTables(const CalibrateSummary& summary) {
  const auto& contents = summary.contents;
  Table table;
  table.Add({"layers", std::to_string(contents.geometry.layers.size()) + ", " +
                           std::string(DTypeName(contents.geometry.dtype))});
  table.Add({"tokens", std::to_string(contents.tokens)});
  for (const EntropyClasses& classes : contents.entropy) {
    table.Add({"alphabet " + std::to_string(classes.alphabet),
               std::to_string(classes.frequencies.size()) + " entropy classes"});
  }
  if (Planes(contents.klt_heads) > 0) {
    table.Add({"KLT", std::to_string(Planes(contents.klt_heads)) + " planes by head, " +
                          std::to_string(Planes(contents.klt_joint)) + " over all heads"});
  }
  if (QueryLayers(contents) > 0) {
    table.Add(
        {"queries", "mean and covariance in " + std::to_string(QueryLayers(contents)) + " layers"});
  }
  if (contents.code_tables) {
    table.Add({"transform", std::to_string(PredictedPlanes(contents)) + " predicted planes"});
    for (const auto& point : contents.code_tables->points) {
      table.Add({"step " + Fixed(point.step, 3),
                 Fixed(point.bits_per_value, 3) + " bits per value over these texts"});
    }
  }
  for (const std::string& what : summary.left_out) {
    table.Add({"left out", what + ", which needs --model and texts"});
  }
  table.Add({"size", BytesText(summary.bytes.size())});
  table.Add({"checksum", Hash128(summary.bytes).hex()});
  table.Add({"seconds", Fixed(summary.seconds, 1)});
  table.Print();
  PrintHeadScores(contents.head_scores);
}

}  // namespace

void PrintSummary(const Invocation& invocation, const CalibrateSummary& summary) {
  if (invocation.json) return PrintJson(invocation, SummaryJson(summary));
  PrintTables(summary);
}

}  // namespace kvserve::tool
