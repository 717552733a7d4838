#include "evaluation/speed/sample_kv.h"

#include <utility>

#include "base/try.h"
#include "kvserve/codec.h"
#include "tensorfile/dtype_convert.h"

// The assembler copies the file into the object: a string literal of that size takes minutes.
asm(".section .rodata\n"
    ".balign 64\n"
    ".global kvserve_sample_begin\n.hidden kvserve_sample_begin\n"
    "kvserve_sample_begin:\n"
    ".incbin \"" KVSERVE_SAMPLE_FILE
    "\"\n"
    ".global kvserve_sample_end\n.hidden kvserve_sample_end\n"
    "kvserve_sample_end:\n"
    ".byte 0\n"
    ".text\n");
extern "C" {
extern const std::byte kvserve_sample_begin;  // NOLINT(readability-identifier-naming)
extern const std::byte kvserve_sample_end;    // NOLINT(readability-identifier-naming)
}

namespace kvserve {

std::span<const std::byte> SampleFrames() {
  return {&kvserve_sample_begin, &kvserve_sample_end};
}

Status LoadSample(DType dtype, KvBuffer& out) {
  KVSERVE_ASSIGN(const std::size_t used, DecodeFrame(SampleFrames(), {}, out));
  if (used != SampleFrames().size()) {
    return MakeError(ErrorCode::kInternal, "the sample has more than one frame");
  }
  if (dtype == out.geometry().dtype) return {};
  const KvBuffer captured = std::move(out);
  out = {};
  KVSERVE_TRY(ConvertDType(captured.view(), dtype, OutOfRangePolicy::kRefuse, out));
  return {};
}

}  // namespace kvserve
