// Finding rows of a stage table.
#pragma once

#include <string>
#include <string_view>

#include "pipeline/stage.h"

namespace kvserve {

[[nodiscard]] std::string_view KindName(StageKind kind);  // "selector", ...

[[nodiscard]] const StageEntry* FindStage(StageTable table, std::uint16_t id);
[[nodiscard]] const StageEntry* FindStage(StageTable table, StageKind kind, std::string_view name);
// By name alone; names are shared by kinds only for `none`, which this does not find.
[[nodiscard]] const StageEntry* FindStage(StageTable table, std::string_view name);

// A chain is selectors, transforms, one quantizer, one codec. Why `next` cannot follow a stage of
// kind `last` (kSelector before the first stage); empty when it can.
[[nodiscard]] std::string OrderFault(StageKind last, const StageInfo& next);

// "hadamard, uniform, rans": every name once, for messages.
[[nodiscard]] std::string StageNames(StageTable table);
// "0x0201".
[[nodiscard]] std::string StageIdText(std::uint16_t id);

}  // namespace kvserve
