#include "stage_seeds.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/byte_io.h"
#include "base/hash.h"
#include "chosen_stage.h"
#include "codec_check.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
#include "plane_case.h"
#include "plane_ways.h"
#include "stages/registry.h"

namespace kvserve::fuzzing {
namespace {

using Bytes = std::vector<std::uint8_t>;

void Append(Bytes& to, std::span<const std::uint8_t> from) {
  for (const std::uint8_t byte : from) to.push_back(byte);  // insert warns with GCC 12
}

void Append(Bytes& to, std::span<const std::byte> from) {
  for (const std::byte byte : from) to.push_back(static_cast<std::uint8_t>(byte));
}

Settings Defaults(const StageInfo& info) {
  return CheckedSettings(info, DefaultValues(info), ErrorCode::kInternal).value();
}

// ---- codecs ------------------------------------------------------------------------------------

constexpr std::size_t kLargestPayload = 4096;

struct PlaneSize {
  std::uint8_t tokens;
  std::uint8_t columns;
  std::uint8_t top;  // alphabet - 1
};
struct CodecCase {
  const char* name;
  std::vector<PlaneSize> planes;
};

// One plane; planes that differ, some without symbols; enough symbols for several lanes; those that
// the artefact of CodecContext has tables for.
const std::vector<CodecCase>& CodecCases() {
  static const std::vector<CodecCase> cases = {
      {"one", {{9, 7, 15}}},
      {"mixed", {{5, 8, 15}, {0, 8, 7}, {6, 3, 255}, {4, 4, 0}}},
      {"long", {{64, 24, 3}, {64, 16, 4}}},
      {"known", {{5, 64, 254}, {5, 64, 254}, {4, 16, 254}, {5, 96, 254}}},
  };
  return cases;
}

// A plane that is cut, between others.
const CodecCase& PiecesCase() {
  static const CodecCase cut = {"pieces", {{3, 9, 15}, {131, 255, 3}, {2, 5, 7}}};
  return cut;
}

// Mostly one symbol, so that tables pay; of very many nearly only one, so that seeds stay small.
Bytes Skewed(std::size_t count, std::uint32_t alphabet) {
  const std::uint32_t rarity = count > 10'000 ? 8192 : 4;
  Bytes symbols(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto noise = static_cast<std::uint32_t>(i * 2654435761U >> 7);
    symbols[i] =
        static_cast<std::uint8_t>(noise % rarity != 0 ? alphabet / 2 : noise / rarity % alphabet);
  }
  return symbols;
}

void MakeCodecSeed(const StageEntry& entry, const CodecCase& chosen, const CodecLimits& limits,
                   const WriteSeed& write) {
  const auto codec = entry.make_codec(Defaults(*entry.info));
  if (!codec) return;
  Bytes seed = StageBytes(*entry.info);
  seed.push_back(1);
  seed.push_back(static_cast<std::uint8_t>(chosen.planes.size()));
  std::vector<Bytes> storage;
  std::vector<SymbolPlane> planes;
  for (const PlaneSize& size : chosen.planes) {
    Append(seed, Bytes{size.tokens, size.columns, size.top});
    SymbolPlane& plane = planes.emplace_back();
    plane.layer = static_cast<std::uint32_t>((planes.size() - 1) / 2);
    plane.kind = planes.size() % 2 == 1 ? PlaneKind::kKey : PlaneKind::kValue;
    plane.tokens = size.tokens * limits.tokens_per_unit;
    plane.columns = size.columns;
    plane.alphabet = 1U + size.top;
    storage.push_back(Skewed(plane.count(), plane.alphabet));
  }
  for (std::size_t p = 0; p < planes.size(); ++p) planes[p].symbols = storage[p];
  const FrameContext frame = CodecContext();
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  if (!(*codec)->Encode(frame, planes, writer) || bytes.size() > kLargestPayload) return;
  Append(seed, bytes);
  write(std::string(entry.info->name) + "-" + chosen.name, seed);
}

// ---- planes ------------------------------------------------------------------------------------

constexpr std::uint8_t kEncode = 1;
constexpr std::uint8_t kTransform = 2;
constexpr std::uint8_t kScalar = 4;

Bytes PlaneSeed(std::uint8_t what, const Bytes& stage, std::span<const std::byte> side) {
  Bytes seed = {what};
  Append(seed, stage);
  // float16, 2 heads of 12, 7 tokens from the first, layer 1, halves, tiles of 3 rows.
  Append(seed, Bytes{0, 1, 11, 7, 1 | 4 | 8, 2});
  seed.push_back(static_cast<std::uint8_t>(side.size() & 0xFF));
  seed.push_back(static_cast<std::uint8_t>(side.size() >> 8));
  Append(seed, side);
  for (unsigned i = 0; i < 94; ++i) {
    const auto noise = static_cast<std::uint8_t>(i * 37 + i / 7 * 11);
    seed.push_back(i % 2 == 0 ? noise : static_cast<std::uint8_t>(0x38 + noise % 8));
  }
  return seed;
}

// The side bytes that this stage writes for the seed's values; reads what plane_fuzzer reads.
std::vector<std::byte> SideOf(StageKind kind, const Bytes& seed) {
  Choices choices(seed);
  (void)choices.Byte();
  const auto chosen = ChooseStage(kind, choices);
  if (!chosen) return {};
  PlaneCase plane(choices);
  if (kind == StageKind::kTransform) {
    const auto transform = chosen->entry->make_transform(chosen->settings);
    if (!transform) return {};
    if ((*transform)->needs_artefact()) plane.Calibrate();
    (void)plane.earlier();
    return TransformWays(**transform, plane).ForwardWhole().side;
  }
  const auto quantizer = chosen->entry->make_quantizer(chosen->settings);
  if (!quantizer) return {};
  if ((*quantizer)->needs_artefact()) plane.Calibrate();
  SymbolPlane planned;
  planned.layer = plane.context().layer;
  planned.kind = plane.context().kind;
  planned.tokens = plane.shape().tokens;
  if (!(*quantizer)
           ->Plan(plane.context(), plane.dtype(), plane.shape().heads, plane.shape().dim,
                  planned)) {
    return {};
  }
  const auto coded = chosen->entry->info->domain == QuantizerDomain::kNative
                         ? NativeWays(**quantizer, plane, planned, false).EncodeWhole()
                         : RealWays(**quantizer, plane, planned).EncodeWhole();
  return coded ? coded->side : std::vector<std::byte>{};
}

// Defaults, and every other value of a choice.
std::vector<Bytes> ParameterBytes(const StageInfo& info) {
  std::vector<Bytes> all = {{}};
  const auto slots = ParameterSlots(info);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].info->type != ParameterType::kChoice || slots[i].plane != PlaneKind::kKey)
      continue;
    for (std::size_t value = 0; value < slots[i].info->choices.size(); ++value) {
      if (static_cast<double>(value) == slots[i].default_value) continue;
      Bytes bytes(i + 1);
      bytes[i] = static_cast<std::uint8_t>(3 + value);
      all.push_back(bytes);
    }
  }
  return all;
}

void MakePlaneSeedsOf(const StageInfo& info, const WriteSeed& write) {
  const std::uint8_t kind = info.kind == StageKind::kTransform ? kTransform : 0;
  unsigned index = 0;
  for (const Bytes& parameters : ParameterBytes(info)) {
    const Bytes stage = StageBytes(info, parameters);
    const std::string name = std::string(info.name) + "-" + std::to_string(index++);
    const Bytes encode = PlaneSeed(kind | kEncode | kScalar, stage, {});
    write(name + "-encode", encode);
    write(name + "-decode", PlaneSeed(kind | kScalar, stage, SideOf(info.kind, encode)));
  }
}

// ---- chains ------------------------------------------------------------------------------------

const StageInfo& Named(StageKind kind, std::string_view name) {
  return *FindStage(BuiltinStages(), kind, name)->info;
}

void MakeIsaSeed(const std::string& name, const StageInfo* transform, const StageInfo& quantizer,
                 const StageInfo& codec, const WriteSeed& write) {
  Bytes seed = {static_cast<std::uint8_t>(transform == nullptr ? 0 : 1)};
  if (transform != nullptr) Append(seed, StageBytes(*transform));
  Append(seed, StageBytes(quantizer));
  Append(seed, StageBytes(codec));
  // Its name decides the dtype and the shape, so that another stage's seed changes none.
  const auto choice = static_cast<std::uint8_t>(
      4U | Hash64(std::as_bytes(std::span(name.data(), name.size()))) % 32U);
  Append(seed, Bytes{choice, 1, 23, 15, 19});
  for (unsigned i = 0; i < 61; ++i) seed.push_back(static_cast<std::uint8_t>(i * 37 % 64));
  write(name, seed);
}

}  // namespace

void MakeCodecSeeds(const WriteSeed& write) {
  for (const StageEntry& entry : BuiltinStages()) {
    if (entry.info->kind != StageKind::kCodec) continue;
    for (const CodecCase& chosen : CodecCases()) MakeCodecSeed(entry, chosen, kShortPlanes, write);
  }
}

void MakePiecesSeeds(const WriteSeed& write) {
  for (const StageEntry& entry : BuiltinStages()) {
    if (entry.info->kind != StageKind::kCodec) continue;
    MakeCodecSeed(entry, PiecesCase(), kLongPlanes, write);
  }
}

void MakePlaneSeeds(const WriteSeed& write) {
  for (const StageEntry& entry : BuiltinStages()) {
    const StageKind kind = entry.info->kind;
    if (kind == StageKind::kTransform || kind == StageKind::kQuantizer) {
      MakePlaneSeedsOf(*entry.info, write);
    }
  }
}

void MakeIsaSeeds(const WriteSeed& write) {
  const StageInfo& uniform = Named(StageKind::kQuantizer, "uniform");
  const StageInfo& rans = Named(StageKind::kCodec, "rans");
  for (const StageEntry& entry : BuiltinStages()) {
    const StageInfo& info = *entry.info;
    const std::string name = std::string(KindName(info.kind)) + "-" + std::string(info.name);
    switch (info.kind) {
      case StageKind::kTransform: MakeIsaSeed(name, &info, uniform, rans, write); break;
      case StageKind::kQuantizer: MakeIsaSeed(name, nullptr, info, rans, write); break;
      case StageKind::kCodec: MakeIsaSeed(name, nullptr, uniform, info, write); break;
      case StageKind::kSelector: break;
    }
  }
}

}  // namespace kvserve::fuzzing
