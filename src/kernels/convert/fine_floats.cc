#include "kernels/convert/fine_floats.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kFine = 0;
constexpr std::uint8_t kFloat32 = 1;
constexpr float kLimit = 0x1p16F;
constexpr std::uint64_t kLargestCode = std::uint64_t{1} << 24;  // of +-2^16

bool AllFine(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::fabs(value) < kLimit; });
}

std::int32_t PartsOf(float value) {
  return static_cast<std::int32_t>(std::nearbyint(value / kFineUnit));
}

}  // namespace

void RoundFineFloats(std::span<float> values) {
  if (!AllFine(values)) return;
  for (float& value : values) value = static_cast<float>(PartsOf(value)) * kFineUnit;
}

void WriteFineFloats(std::span<const float> values, ByteWriter& out) {
  const bool fine = AllFine(values);
  out.Put(fine ? kFine : kFloat32);
  if (!fine) return out.PutBytes(std::as_bytes(values));
  for (const float value : values) {
    const std::int32_t parts = PartsOf(value);
    out.PutVarint(static_cast<std::uint32_t>(parts >= 0 ? 2 * parts : -2 * parts - 1));
  }
}

Status ReadFineFloats(ByteReader& in, std::span<float> values) {
  KVSERVE_ASSIGN(const auto form, in.Get<std::uint8_t>());
  if (form > kFloat32) return MakeError(ErrorCode::kCorruptData, "unknown form of a raw row");
  for (float& value : values) {
    if (form == kFloat32) {
      KVSERVE_ASSIGN(value, in.Get<float>());
      if (std::isfinite(value)) continue;
      return MakeError(ErrorCode::kCorruptData, "a value of a raw row is not finite");
    }
    KVSERVE_ASSIGN(const auto code, in.GetVarint());
    if (code > kLargestCode) {
      return MakeError(ErrorCode::kCorruptData, "a value of a raw row is too large for its form");
    }
    const std::uint64_t parts = (code + 1) / 2;
    const float magnitude = static_cast<float>(parts) * kFineUnit;
    value = code % 2 == 0 ? magnitude : -magnitude;
  }
  return {};
}

}  // namespace kvserve
