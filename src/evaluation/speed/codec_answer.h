// What coding one chunk must give, by the reference executor; and whether it did.
#pragma once

#include <cstddef>
#include <span>

#include "evaluation/speed/kv_error.h"
#include "kvserve/codec.h"
#include "pipeline/reference_executor.h"

namespace kvserve {

struct CodecAnswer {
  CodedSections sections;
  KvBuffer decoded;
  KvError error;          // of `decoded` against the chunk
  bool lossless = false;  // every stage of the chain is
};

// `calibration` may be null for chains that need none. Errors as EncodeFrame; for a chain of
// lossless stages kInternal unless every bit comes back.
[[nodiscard]] Result<CodecAnswer> ReferenceAnswer(const ConstKvView& chunk, const Profile& profile,
                                                  std::uint32_t prompt_tokens,
                                                  const CalibrationArtefact* calibration = nullptr);

// kInternal unless the frame has the answer's sections, byte for byte.
[[nodiscard]] Status CheckEncoded(const CodecAnswer& answer, std::span<const std::byte> frame);

// kInternal unless both have the same shapes and bits; the message says where they part.
[[nodiscard]] Status CheckSame(const ConstKvView& wanted, const ConstKvView& found);

}  // namespace kvserve
