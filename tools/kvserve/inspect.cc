// kvserve inspect: what the headers of a file of frames say, damaged frames included, or what is in
// a calibration artefact.
#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "base/try.h"
#include "calibration_report.h"
#include "command.h"
#include "frame_scan.h"
#include "layer_json.h"
#include "pipeline/profile_text.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
#include "stages/profile_facts.h"
#include "stages/registry.h"
#include "table.h"
#include "tensorfile/input_file.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

Json RangeJson(TokenRange tokens) {
  return {tokens.begin, tokens.end};
}

Json FingerprintJson(const Fingerprint& fingerprint) {
  return fingerprint.empty() ? Json() : Json(fingerprint.hex());
}

std::string HexText(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

Json GeometryJson(const FrameHeader& header) {
  Json layers = Json::array();
  for (const FrameLayer& layer : header.layers) {
    Json& json = layers.emplace_back(LayerJson(layer.geometry));
    json["layer"] = layer.layer;
    json["tokens"] = RangeJson(layer.tokens);
  }
  return {{"dtype", DTypeName(header.dtype)},
          {"model_layers", header.model_layers},
          {"tokens", RangeJson(header.tokens)},
          {"prompt_tokens", header.prompt_tokens},
          {"layers", layers}};
}

// Parameters by name; those of a stage that this build lacks by their ids.
Json StageJson(const StageSpec& spec) {
  const StageEntry* const entry = FindStage(BuiltinStages(), spec.id);
  Json parameters = Json::object();
  if (entry != nullptr) {
    for (const ParameterSlot& slot : ParameterSlots(*entry->info)) {
      for (const ParameterValue& value : spec.parameters) {
        if (value.id == slot.id) parameters[slot.name()] = ValueText(*slot.info, value.value);
      }
    }
  } else {
    for (const ParameterValue& value : spec.parameters) {
      parameters[std::to_string(value.id)] = value.value;
    }
  }
  return {{"id", spec.id},
          {"version", spec.version},
          {"name", entry != nullptr ? Json(entry->info->name) : Json()},
          {"kind", entry != nullptr ? Json(KindName(entry->info->kind)) : Json()},
          {"parameters", parameters}};
}

// Per stage of the header; empty when the chain cannot be made in this build.
std::vector<StageFacts> FactsOfStages(const FrameHeader& header) {
  const auto facts = FactsOf(header.stages, header.dtype, ProfileOrigin::kFrame);
  return facts ? facts->stages : std::vector<StageFacts>{};
}

Json ScaleSourceJson(const std::vector<StageFacts>& facts, std::uint16_t id) {
  const auto found = std::ranges::find(facts, id, &StageFacts::id);
  if (found == facts.end()) return {};
  return {{"k", ScaleSourceName(found->k_scales)}, {"v", ScaleSourceName(found->v_scales)}};
}

Json FrameJson(const ScannedFrame& frame) {
  Json json = {{"offset", frame.offset},
               {"frame_bytes", frame.frame_bytes},
               {"checksum_ok", frame.checksum_ok()},
               {"sections", Json::array()},
               {"stages", Json::array()}};
  if (frame.error) json["error"] = frame.error->message;
  for (const ScannedSection& section : frame.sections) {
    json["sections"].push_back({{"kind", SectionName(section.kind)},
                                {"bytes", section.bytes},
                                {"checksum", HexText(section.checksum)},
                                {"checksum_ok", section.checksum_ok}});
  }
  json["version"] = Json();
  json["geometry"] = Json();
  if (!frame.header) return json;
  const FrameHeader& header = *frame.header;
  json["version"] = header.version;
  json["features"] = header.features;
  json["geometry"] = GeometryJson(header);
  json["profile"] = ProfileText(header.stages, BuiltinStages());
  json["model"] = FingerprintJson(header.model);
  json["key"] = FingerprintJson(header.key);
  json["artefact"] = FingerprintJson(header.artefact);
  json["quality_class"] = QualityClassName(IsLossless(header.stages));
  const auto facts = FactsOfStages(header);
  for (const StageSpec& spec : header.stages) {
    json["stages"].push_back(StageJson(spec));
    json["stages"].back()["scale_source"] = ScaleSourceJson(facts, spec.id);
  }
  return json;
}

std::string FingerprintText(const Fingerprint& fingerprint) {
  return fingerprint.empty() ? "not known" : fingerprint.hex();
}

void PrintHeader(const FrameHeader& header) {
  Table facts;
  facts.Add({"  version", std::to_string(header.version)});
  facts.Add({"  profile", ProfileText(header.stages, BuiltinStages())});
  facts.Add({"  quality class", std::string(QualityClassName(IsLossless(header.stages)))});
  if (const auto known = FactsOf(header.stages, header.dtype, ProfileOrigin::kFrame)) {
    facts.Add({"  scale sources", ScaleSourcesText(*known)});
  }
  if (!header.artefact.empty()) facts.Add({"  artefact", header.artefact.hex()});
  facts.Add({"  model", FingerprintText(header.model)});
  facts.Add({"  key", FingerprintText(header.key)});
  const LayerGeometry& first = header.layers.front().geometry;
  facts.Add({"  geometry", std::to_string(header.layers.size()) + " of " +
                               std::to_string(header.model_layers) + " layers, " +
                               std::string(DTypeName(header.dtype)) + ", first " +
                               std::to_string(first.kv_heads) + " heads, K " +
                               std::to_string(first.k_dim) + ", V " + std::to_string(first.v_dim)});
  facts.Add(
      {"  tokens", std::to_string(header.tokens.begin) + ".." + std::to_string(header.tokens.end)});
  for (const StageSpec& spec : header.stages) {
    const Json stage = StageJson(spec);
    std::string text;
    for (const auto& item : stage["parameters"].items()) {
      text += (text.empty() ? "" : ", ") + item.key() + " ";
      text += item.value().is_string() ? item.value().get<std::string>() : item.value().dump();
    }
    const std::string name = stage["name"].is_string() ? stage["name"].get<std::string>()
                                                       : "stage " + StageIdText(spec.id);
    facts.Add({"  " + name + " v" + std::to_string(spec.version), text});
  }
  facts.Print();
}

void PrintFrames(const std::vector<ScannedFrame>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const ScannedFrame& frame = frames[i];
    std::printf("frame %zu at byte %zu, %s: %s\n", i, frame.offset,
                BytesText(frame.frame_bytes).c_str(), frame.error ? "DAMAGED" : "sound");
    if (frame.error) std::printf("  %s\n", frame.error->message.c_str());
    if (frame.header && !frame.header->layers.empty()) PrintHeader(*frame.header);
    Table sections;
    for (const ScannedSection& section : frame.sections) {
      sections.Add({"  section " + std::string(SectionName(section.kind)), BytesText(section.bytes),
                    HexText(section.checksum), section.checksum_ok ? "sound" : "DAMAGED"});
    }
    sections.Print();
  }
}

// Where a sender has fallen back, frames of one request differ. Nothing when all are alike.
void PrintProfiles(const std::vector<ScannedFrame>& frames) {
  std::map<std::string, std::size_t> count;
  for (const ScannedFrame& frame : frames) {
    if (frame.header) ++count[ProfileText(frame.header->stages, BuiltinStages())];
  }
  if (count.size() < 2) return;
  for (const auto& [profile, number] : count) {
    std::printf("%zu of %zu frames by %s\n", number, frames.size(), profile.c_str());
  }
}

Status RunInspect(const std::string& path, const Invocation& invocation) {
  KVSERVE_ASSIGN(const auto bytes, ReadFile(path));
  if (bytes.empty()) return MakeError(ErrorCode::kCorruptData, path + ": has no bytes");
  if (IsCalibration(bytes)) return InspectCalibration(path, bytes, invocation);
  const auto frames = ScanFrames(bytes);
  if (invocation.json) {
    Json document = {{"frames", Json::array()}, {"file_bytes", bytes.size()}};
    for (const ScannedFrame& frame : frames) document["frames"].push_back(FrameJson(frame));
    PrintJson(invocation, std::move(document));
  } else {
    PrintFrames(frames);
    PrintProfiles(frames);
  }
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (!frames[i].error) continue;
    return MakeError(frames[i].error->code, path + ": frame " + std::to_string(i) + " at byte " +
                                                std::to_string(frames[i].offset) + ": " +
                                                frames[i].error->message);
  }
  return {};
}

}  // namespace

void AddInspect(CLI::App& app, Invocation& invocation) {
  auto path = std::make_shared<std::string>();
  CLI::App& command =
      *app.add_subcommand("inspect", "Show the headers of a file of frames and check its bytes");
  command.add_option("x.kvs", *path, "File of frames, or a calibration artefact")->required();
  AddJsonFlag(command, invocation);
  command.footer(
      "Damaged frames are shown as far as they can be trusted; the exit status is then 4.\n"
      "Examples:\n"
      "  kvserve inspect kv.kvs\n"
      "  kvserve inspect kv.kvs --json\n"
      "  kvserve inspect m.calib");
  command.callback([path, &invocation] {
    invocation.run = [path, &invocation] { return RunInspect(*path, invocation); };
  });
}

}  // namespace kvserve::tool
