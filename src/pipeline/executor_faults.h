// What executors say when a frame cannot be coded: the same words whichever of them runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/byte_io.h"
#include "kvserve/error.h"
#include "pipeline/stage.h"

namespace kvserve {

// The error of a stage with its name in front, and that of the plane in hand.
[[nodiscard]] Status Named(Status status, const PlaneContext& plane, const StageInfo& info);
[[nodiscard]] Status Named(Status status, const StageInfo& info);

// kBadInput that names the first value of a whole plane that is not finite, or success.
[[nodiscard]] Status CheckFinite(const PlaneContext& plane, ConstRealPlane values,
                                 std::string_view source, std::string_view quantizer);
// The same for coefficients that a transform gave: not finite, or above kLargestCoefficient.
[[nodiscard]] Status CheckBounded(const PlaneContext& plane, ConstRealPlane values,
                                  std::string_view transform);

// kCorruptData for bytes that nothing has read.
[[nodiscard]] Status CheckSectionRead(const ByteReader& reader, std::string_view section);
[[nodiscard]] Status CheckSideRead(const ByteReader& reader, const PlaneContext& plane);

// kCorruptData: an encoder takes only finite values.
[[nodiscard]] Status NotNumbers(const PlaneContext& plane);

}  // namespace kvserve
