// Any bytes as the symbols of any planes: every codec's decoder, whole and in pieces;
// codec_check.h.
#include "codec_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvserve::fuzzing::CheckCodec({data, size}, kvserve::fuzzing::kShortPlanes);
  return 0;
}
