// XXH3 behind two functions, so that no other file names the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvserve/geometry.h"

namespace kvserve {

[[nodiscard]] std::uint64_t Hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
// Of three spans one after the other, seed 0.
[[nodiscard]] std::uint64_t Hash64(std::span<const std::byte> first,
                                   std::span<const std::byte> second,
                                   std::span<const std::byte> third);
[[nodiscard]] Fingerprint Hash128(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace kvserve
