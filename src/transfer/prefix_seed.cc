#include "transfer/prefix_seed.h"

#include <vector>

#include "base/byte_io.h"
#include "base/hash.h"

namespace kvserve {

Fingerprint PrefixSeed(const Fingerprint& model, std::string_view context) {
  if (context.empty()) return model;
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.PutBytes(std::as_bytes(std::span(model.bytes)));
  writer.PutBytes(std::as_bytes(std::span(context)));
  return Hash128(bytes);
}

}  // namespace kvserve
