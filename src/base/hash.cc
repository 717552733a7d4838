#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvserve {

std::uint64_t Hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
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
