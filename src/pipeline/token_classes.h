// Classes of tokens by their weight, and how they are coded; docs/FORMAT_STAGES.md, "Quantizer
// mixed", has the bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_io.h"
#include "kvserve/error.h"
#include "pipeline/stage.h"

namespace kvserve {

// A token of class c has 2^((kNominalClass - c) / 2) times the nominal step, or is dropped.
inline constexpr std::uint8_t kTokenClasses = 13;
inline constexpr std::uint8_t kNominalClass = 6;

// Of a weight that is finite and not negative: the nearest octave.
[[nodiscard]] std::uint8_t TokenClassOf(float weight);

// Levels of a class where the nominal one has `levels` (2..256).
[[nodiscard]] std::uint32_t LevelsOfClass(std::uint32_t levels, std::uint8_t token_class);

// Classes of the planes; those without any are nominal throughout. No bytes if all are.
void WriteTokenClasses(std::span<const SymbolPlane> planes, ByteWriter& out);
// Sets token_classes of planes that have rows, where not nominal throughout. kCorruptData.
[[nodiscard]] Status ReadTokenClasses(ByteReader& in, std::span<SymbolPlane> planes);

}  // namespace kvserve
