// Between frames and fuzzer inputs that need no checksums: a frame whose lengths and checksums are
// left out, so that mutations of fields and payloads reach the stages' decoders.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kvserve::fuzzing {

// Input: u16 size and bytes of the header body without its section table, u16 size and bytes of the
// classes, u16 size and bytes of the side section, then the symbols. Sizes past the end are cut.
// Sections without bytes are left out of the frame.
[[nodiscard]] std::vector<std::byte> SealFrame(std::span<const std::byte> input);

// The input that SealFrame turns into this valid frame; empty when a part is over 65535 bytes.
[[nodiscard]] std::vector<std::byte> UnsealFrame(std::span<const std::byte> frame);

}  // namespace kvserve::fuzzing
