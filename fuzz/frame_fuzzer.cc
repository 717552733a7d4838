// Any bytes as a frame: prefix, checksums and header.
#include <cstdint>
#include <span>

#include "decode_contract.h"
#include "kvserve/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvserve::KvBuffer out;
  const auto decoded =
      kvserve::DecodeFrame(std::as_bytes(std::span(data, size)), kvserve::fuzzing::Limits(), out);
  kvserve::fuzzing::CheckOutcome(decoded, size);
  return 0;
}
