// Token classes coded with static tables of a calibration artefact, given the class that the token
// had one layer before; docs/FORMAT_STAGES.md, "Quantizer steps", has the bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/byte_io.h"
#include "kvserve/error.h"
#include "library/transform_contents.h"
#include "pipeline/stage.h"

namespace kvserve {

// Classes of the planes, which all end at one token, as one rANS stream of 32-bit state and 16-bit
// words. False, and nothing is written, when a class is not in the tables, as that of dropped
// tokens. Planes without classes are nominal throughout. Scratch memory: 6 bytes per row.
[[nodiscard]] bool WriteCodedClasses(const CodeTables& tables, std::span<const SymbolPlane> planes,
                                     Arena& arena, ByteWriter& out);
// Sets token_classes where not nominal throughout. What is left of `in` is the caller's to refuse.
// kCorruptData.
[[nodiscard]] Status ReadCodedClasses(const CodeTables& tables, ByteReader& in,
                                      std::span<SymbolPlane> planes);

}  // namespace kvserve
