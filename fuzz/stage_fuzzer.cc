// Any header fields and payloads in a sound envelope: every stage's decoder.
#include <cstdint>
#include <span>
#include <utility>

#include "decode_contract.h"
#include "kvserve/codec.h"
#include "sealed_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvserve::fuzzing;
  const auto frame = SealFrame(std::as_bytes(std::span(data, size)));
  kvserve::KvBuffer out;
  const auto decoded = kvserve::DecodeFrame(frame, Limits(), out);
  CheckOutcome(decoded, frame.size());
  const ScalarKernels pinned;
  kvserve::KvBuffer scalar;
  const auto again = kvserve::DecodeFrame(frame, Limits(), scalar);
  if (again.has_value() != decoded.has_value()) Fail("another outcome with scalar kernels");
  if (decoded) CheckSame(std::as_const(out).view(), std::as_const(scalar).view(), "scalar kernels");
  return 0;
}
