#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvserve {

std::uint64_t Hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t Hash64(std::span<const std::byte> first, std::span<const std::byte> second,
                     std::span<const std::byte> third) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const auto part : {first, second, third}) {
    XXH3_64bits_update(&state, part.data(), part.size());
  }
  return XXH3_64bits_digest(&state);
}

// Canonical (big-endian) form, so that the bytes read as the usual hexadecimal digest.
Fingerprint Hash128(std::span<const std::byte> bytes, std::uint64_t seed) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed));
  Fingerprint fingerprint;
  for (std::size_t i = 0; i < fingerprint.bytes.size(); ++i) {
    fingerprint.bytes[i] = canonical.digest[i];
  }
  return fingerprint;
}

}  // namespace kvserve
