#include "kernels/convert/raw_floats.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "kernels/convert/convert.h"
#include "kernels/minmax/minmax.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kFloat16 = 0;
constexpr std::uint8_t kFloat32 = 1;

}  // namespace

void WriteRawFloats(DType cache, std::span<const float> values, ByteWriter& out) {
  const MinMax range = MinMaxSpan(values);
  const float largest = std::max(std::fabs(range.low), std::fabs(range.high));
  const bool fits = largest == 0.0F || (largest <= 65504.0F && largest >= 0x1p-6F);
  const bool narrow = fits && cache != DType::kFloat32;
  out.Put(narrow ? kFloat16 : kFloat32);
  const DType stored = narrow ? DType::kFloat16 : DType::kFloat32;
  (void)FromFloat(stored, values, out.Grow(values.size() * DTypeBytes(stored)));
}

Status ReadRawFloats(ByteReader& in, std::span<float> values) {
  KVSERVE_ASSIGN(const auto form, in.Get<std::uint8_t>());
  if (form > kFloat32) return MakeError(ErrorCode::kCorruptData, "unknown form of raw values");
  const DType stored = form == kFloat16 ? DType::kFloat16 : DType::kFloat32;
  KVSERVE_ASSIGN(const auto bytes, in.GetBytes(values.size() * DTypeBytes(stored)));
  ToFloat(stored, bytes, values);
  return {};
}

}  // namespace kvserve
