// Any header fields and payloads in a sound envelope: every stage's decoder.
#include <cstdint>
#include <span>

#include "decode_contract.h"
#include "kvserve/codec.h"
#include "sealed_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto frame = kvserve::fuzzing::SealFrame(std::as_bytes(std::span(data, size)));
  kvserve::KvBuffer out;
  const auto decoded = kvserve::DecodeFrame(frame, kvserve::fuzzing::Limits(), out);
  kvserve::fuzzing::CheckOutcome(decoded, frame.size());
  return 0;
}
