// The same as codec_fuzzer.cc over planes that are cut into several pieces.
#include "codec_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvserve::fuzzing::CheckCodec({data, size}, kvserve::fuzzing::kLongPlanes);
  return 0;
}
