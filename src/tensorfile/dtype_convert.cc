#include "tensorfile/dtype_convert.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/try.h"

namespace kvserve {
namespace {

constexpr float kLargestFloat16 = 65504.0F;
const float kLargestBFloat16 = BFloat16ToFloat(0x7F7F);

float Load(const std::byte* at, DType dtype) {
  if (dtype == DType::kFloat32) {
    float value = 0.0F;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return dtype == DType::kFloat16 ? Float16ToFloat(bits) : BFloat16ToFloat(bits);
}

void Store(float value, DType dtype, std::byte* at) {
  if (dtype == DType::kFloat32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const std::uint16_t bits =
      dtype == DType::kFloat16 ? FloatToFloat16(value) : FloatToBFloat16(value);
  std::memcpy(at, &bits, sizeof(bits));
}

float LargestFinite(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return kLargestFloat16;
    case DType::kBFloat16: return kLargestBFloat16;
    default: return INFINITY;
  }
}

// Converts one plane with out-of-range values clamped; returns their number.
std::uint64_t ConvertPlane(const ConstPlaneView& in, const PlaneView& out) {
  const float largest = LargestFinite(out.dtype);
  std::uint64_t clamped = 0;
  for (std::uint32_t token = 0; token < in.tokens; ++token) {
    for (std::uint32_t head = 0; head < in.heads; ++head) {
      for (std::uint32_t d = 0; d < in.dim; ++d) {
        float value = Load(in.at(token, head, d), in.dtype);
        if (std::isfinite(value) && std::fabs(value) > largest) {
          value = std::copysign(largest, value);
          ++clamped;
        }
        Store(value, out.dtype, out.at(token, head, d));
      }
    }
  }
  return clamped;
}

}  // namespace

Result<std::uint64_t> ConvertDType(const ConstKvView& in, DType dtype, OutOfRangePolicy policy,
                                   KvBuffer& out) {
  KVSERVE_TRY(CheckView(in));
  KVSERVE_TRY(CheckDTypeSupported(in.geometry->dtype));
  KVSERVE_TRY(CheckDTypeSupported(dtype));
  KvGeometry geometry = *in.geometry;
  geometry.dtype = dtype;
  std::vector<KvBuffer::LayerTokens> layers;
  for (const auto& layer : in.layers) layers.push_back({layer.layer, layer.tokens});
  KVSERVE_TRY(out.Resize(geometry, in.tokens, layers));
  const KvView target = out.view();
  std::uint64_t clamped = 0;
  for (std::size_t i = 0; i < in.layers.size(); ++i) {
    clamped += ConvertPlane(in.layers[i].k, target.layers[i].k);
    if (in.layers[i].v.data != nullptr) {
      clamped += ConvertPlane(in.layers[i].v, target.layers[i].v);
    }
  }
  if (clamped > 0 && policy == OutOfRangePolicy::kRefuse) {
    return MakeError(ErrorCode::kBadInput, std::to_string(clamped) +
                                               " values are beyond the range of " +
                                               std::string(DTypeName(dtype)));
  }
  return clamped;
}

}  // namespace kvserve
