// Seeds of the targets that work on stages of the table, made from the stages themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kvserve::fuzzing {

using WriteSeed = std::function<void(const std::string& name, const std::vector<std::uint8_t>&)>;

// Symbols as each codec codes them: of short planes, and of one that is cut into pieces.
void MakeCodecSeeds(const WriteSeed& write);
void MakePiecesSeeds(const WriteSeed& write);
// Side bytes as each quantizer and transform writes them, and values for its encoder.
void MakePlaneSeeds(const WriteSeed& write);
// Each stage in a chain.
void MakeIsaSeeds(const WriteSeed& write);

}  // namespace kvserve::fuzzing
