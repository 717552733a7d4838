#include "chosen_stage.h"

#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "library/testing/sample_artefact.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
#include "stages/registry.h"

namespace kvserve::fuzzing {
namespace {

std::string_view PinnedName() {
  static const char* const name = std::getenv("KVSERVE_FUZZ_STAGE");
  return name == nullptr ? "" : name;
}

bool PinnedOut(const StageInfo& info) {
  const std::string_view pinned = PinnedName();
  if (pinned.empty() || pinned == info.name) return false;
  return pinned != std::string(KindName(info.kind)) + "-" + std::string(info.name);
}

// The next one that is not pinned out, around the table.
const StageEntry* FindById(StageKind kind, std::uint8_t low_id) {
  const StageEntry* first = nullptr;
  for (const StageEntry& entry : BuiltinStages()) {
    if (entry.info->kind != kind || PinnedOut(*entry.info)) continue;
    if ((entry.info->id & 0xFF) >= low_id) return &entry;
    if (first == nullptr) first = &entry;
  }
  return first;
}

double ParameterFrom(const ParameterSlot& slot, std::uint8_t byte) {
  const double low = slot.info->low;
  const double high = slot.info->high;
  switch (byte) {
    case 0: return slot.default_value;
    case 1: return low;
    case 2: return high;
    default: break;
  }
  if (slot.info->type == ParameterType::kReal) return low + (high - low) * byte / 255.0;
  const double span = high - low + 1;
  return span <= 253 ? low + (byte - 3) % static_cast<int>(span)
                     : low + std::floor((high - low) * (byte - 3) / 252.0);
}

std::uint8_t VersionFrom(const StageInfo& info, std::uint8_t byte) {
  const std::uint8_t oldest = info.oldest_version == 0 ? info.version : info.oldest_version;
  return static_cast<std::uint8_t>(info.version - byte % (info.version - oldest + 1));
}

}  // namespace

std::optional<ChosenStage> ChooseStage(StageKind kind, Choices& choices) {
  const StageEntry* entry = FindById(kind, choices.Byte());
  const std::uint8_t version = choices.Byte();
  const auto bytes = choices.Take(choices.Byte());
  if (entry == nullptr) return std::nullopt;
  ChosenStage chosen{entry, {}};
  const std::uint8_t wanted = VersionFrom(*entry->info, version);
  std::vector<ParameterValue> values;
  for (const ParameterSlot& slot : ParameterSlots(*entry->info)) {
    if (slot.info->since > wanted) continue;
    const std::uint8_t byte = values.size() < bytes.size() ? bytes[values.size()] : 0;
    values.push_back({slot.id, ParameterFrom(slot, byte)});
  }
  auto settings = CheckedSettings(*entry->info, wanted, values, ErrorCode::kCorruptData);
  if (!settings) return std::nullopt;
  chosen.settings = std::move(*settings);
  return chosen;
}

std::vector<std::uint8_t> StageBytes(const StageInfo& info,
                                     std::span<const std::uint8_t> parameters) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(3 + parameters.size());
  bytes.push_back(static_cast<std::uint8_t>(info.id & 0xFF));
  bytes.push_back(0);
  bytes.push_back(static_cast<std::uint8_t>(parameters.size()));
  for (const std::uint8_t parameter : parameters) bytes.push_back(parameter);
  return bytes;
}

Arena& SharedArena() {
  static Arena arena;
  return arena;
}

FrameContext CodecContext() {
  static Workers workers;
  static const KvGeometry geometry{
      DType::kFloat16,
      {{.kv_heads = 1, .k_dim = 64, .v_dim = 64}, {.kv_heads = 2, .k_dim = 8, .v_dim = 48}}};
  static const auto artefact = testing::SampleArtefact(geometry);
  FrameContext frame;
  frame.geometry = &geometry;
  frame.arena = &SharedArena();
  frame.arena->Reset();
  frame.workers = &workers;
  frame.artefact = artefact.get();
  return frame;
}

}  // namespace kvserve::fuzzing
