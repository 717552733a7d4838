// Any bytes as a calibration artefact; what is accepted is written again, and that is read the
// same.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "decode_contract.h"
#include "library/calibration_file.h"
#include "sealed_calibration.h"

namespace kvserve::fuzzing {
namespace {

using Bytes = std::span<const std::byte>;

void Check(Bytes file) {
  const auto artefact = ParseCalibration(file);
  if (!artefact) {
    if (AllowedError(artefact.error().code)) return;
    Fail("bytes caused " + std::string(ErrorName(artefact.error().code)) + ": " +
         artefact.error().message);
  }
  const auto written = FormatCalibration((*artefact)->contents());
  if (!written) Fail("an accepted artefact cannot be written: " + written.error().message);
  if (written->size() > file.size()) Fail("an artefact grows when it is written again");
  const auto again = ParseCalibration(*written);
  if (!again) Fail("what was written is not read: " + again.error().message);
  if (FormatCalibration((*again)->contents()).value() != *written) Fail("contents have changed");
}

}  // namespace
}  // namespace kvserve::fuzzing

// The first byte: 0 for a file as it is, anything else for what SealCalibration makes one of.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kvserve::fuzzing::Check;
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] == 0) {
    Check(input);
  } else {
    Check(kvserve::fuzzing::SealCalibration(input));
  }
  return 0;
}
