// Fuzzer inputs that become calibration artefacts with sound lengths and checksums, so that
// mutations reach the header's fields and the sections' readers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kvserve::fuzzing {

// Input: u16 size and bytes of the header body without its section table, then per section u8 kind,
// u8 flags, u8 version, u16 size and bytes. Sizes past the end are cut.
[[nodiscard]] std::vector<std::byte> SealCalibration(std::span<const std::byte> input);

}  // namespace kvserve::fuzzing
