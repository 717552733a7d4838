#include "calibration_report.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/try.h"
#include "layer_json.h"
#include "library/calibration_file.h"
#include "library/sections/section.h"
#include "table.h"
#include "transform_json.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;
using Contents = CalibrationArtefact::Contents;

std::size_t PlanesWithStatistics(const Contents& contents) {
  return static_cast<std::size_t>(std::ranges::count_if(
      contents.statistics, [](const ChannelStatistics& plane) { return !plane.mean.empty(); }));
}

std::size_t PlanesWithKlt(const std::vector<KarhunenLoeve>& klt) {
  return static_cast<std::size_t>(
      std::ranges::count_if(klt, [](const KarhunenLoeve& plane) { return plane.columns != 0; }));
}

std::size_t LayersWithQueries(const Contents& contents) {
  return static_cast<std::size_t>(std::ranges::count_if(
      contents.query_statistics, [](const QueryStatistics& layer) { return layer.heads != 0; }));
}

Json SectionsJson(const Contents& contents) {
  Json sections = Json::array();
  for (const CalibrationSection& section : CalibrationSections()) {
    if (section.present(contents)) sections.push_back(section.name);
  }
  return sections;
}

std::size_t BytesOf(const CalibrationSection& section, const Contents& contents) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  section.write(contents, out);
  return bytes.size();
}

Json SectionBytesJson(const Contents& contents) {
  Json bytes = Json::object();
  for (const CalibrationSection& section : CalibrationSections()) {
    if (section.present(contents)) bytes[std::string(section.name)] = BytesOf(section, contents);
  }
  return bytes;
}

Json CalibrationJson(const CalibrationArtefact& artefact) {
  const Contents& contents = artefact.contents();
  Json layers = Json::array();
  for (const LayerGeometry& layer : contents.geometry.layers) layers.push_back(LayerJson(layer));
  Json entropy = Json::array();
  for (const EntropyClasses& classes : contents.entropy) {
    entropy.push_back({{"alphabet", classes.alphabet},
                       {"classes", classes.frequencies.size()},
                       {"frequencies", Json::array()}});
    for (const auto& table : classes.frequencies) {
      entropy.back()["frequencies"].push_back(
          std::vector<std::uint16_t>(table.begin(), table.begin() + classes.alphabet));
    }
  }
  return {
      {"version", kCalibrationVersion},
      {"checksum", artefact.fingerprint().hex()},
      {"model", contents.model.empty() ? Json() : Json(contents.model.hex())},
      {"geometry", {{"dtype", DTypeName(contents.geometry.dtype)}, {"layers", std::move(layers)}}},
      {"tokens", contents.tokens},
      {"source", contents.source},
      {"sections", SectionsJson(contents)},
      {"section_bytes", SectionBytesJson(contents)},
      {"planes_with_statistics", PlanesWithStatistics(contents)},
      {"klt_planes",
       {{"heads", PlanesWithKlt(contents.klt_heads)},
        {"joint", PlanesWithKlt(contents.klt_joint)}}},
      {"query_layers", LayersWithQueries(contents)},
      {"head_scores", contents.head_scores},  // [layer][kv_head]
      {"transform", TransformJson(contents)},
      {"entropy", std::move(entropy)}};
}

void PrintCalibration(const CalibrationArtefact& artefact, std::size_t file_bytes) {
  const Contents& contents = artefact.contents();
  std::printf("calibration artefact, %s: sound\n", BytesText(file_bytes).c_str());
  Table table;
  table.Add({"  version", std::to_string(kCalibrationVersion)});
  table.Add({"  checksum", artefact.fingerprint().hex()});
  table.Add({"  model", contents.model.empty() ? "not known" : contents.model.hex()});
  table.Add({"  layers", std::to_string(contents.geometry.layers.size()) + ", " +
                             std::string(DTypeName(contents.geometry.dtype))});
  table.Add({"  tokens", std::to_string(contents.tokens)});
  table.Add({"  source", contents.source});
  table.Add({"  channel statistics", std::to_string(PlanesWithStatistics(contents)) + " planes"});
  if (const std::size_t planes = PlanesWithKlt(contents.klt_heads); planes > 0) {
    table.Add({"  KLT", std::to_string(planes) + " planes by head, " +
                            std::to_string(PlanesWithKlt(contents.klt_joint)) + " over all heads"});
  }
  if (const std::size_t layers = LayersWithQueries(contents); layers > 0) {
    table.Add({"  query statistics", std::to_string(layers) + " layers"});
  }
  if (!contents.head_scores.empty()) {
    table.Add({"  head scores", std::to_string(contents.head_scores.size()) + " layers"});
  }
  if (contents.code_tables) {
    for (const auto& point : contents.code_tables->points) {
      table.Add({"  step " + Fixed(point.step, 3),
                 Fixed(point.bits_per_value, 3) + " bits per value of the texts"});
    }
  }
  if (!contents.attention_profile.planes.empty()) {
    table.Add({"  attention profile",
               "up to " + std::to_string(contents.attention_profile.seen.back()) + " keys seen"});
  }
  if (!contents.frame_expectation.planes.empty()) {
    table.Add({"  frame expectation",
               "frames of " + std::to_string(contents.frame_expectation.frame_tokens) + " tokens" +
                   (contents.frame_expectation.in_kind ? ", texts of their own" : "")});
  }
  for (const EntropyClasses& classes : contents.entropy) {
    table.Add({"  alphabet " + std::to_string(classes.alphabet),
               std::to_string(classes.frequencies.size()) + " entropy classes"});
  }
  for (const CalibrationSection& section : CalibrationSections()) {
    if (!section.present(contents)) continue;
    table.Add({"  section " + std::string(section.name) + " v" + std::to_string(section.version),
               BytesText(BytesOf(section, contents))});
  }
  table.Print();
}

}  // namespace

bool IsCalibration(std::span<const std::byte> bytes) {
  std::uint32_t magic = 0;
  if (bytes.size() < sizeof(magic)) return false;
  std::memcpy(&magic, bytes.data(), sizeof(magic));
  return magic == kCalibrationMagic;
}

Status InspectCalibration(const std::string& path, std::span<const std::byte> bytes,
                          const Invocation& invocation) {
  const auto artefact = ParseCalibration(bytes);
  if (!artefact) return MakeError(artefact.error().code, path + ": " + artefact.error().message);
  if (invocation.json) {
    PrintJson(invocation,
              {{"calibration", CalibrationJson(**artefact)}, {"file_bytes", bytes.size()}});
  } else {
    PrintCalibration(**artefact, bytes.size());
  }
  return {};
}

}  // namespace kvserve::tool
