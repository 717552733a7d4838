#include "tensorfile/dtype_convert.h"

#include <cmath>
#include <vector>

#include "base/half.h"
#include "base/try.h"
#include "kernels/convert/convert.h"
#include "kernels/fp8/fp8.h"

namespace kvserve {
namespace {

float LargestFinite(DType dtype) {
  if (IsFp8(dtype)) return LargestFp8(dtype);
  switch (dtype) {
    case DType::kFloat16: return 65504.0F;
    case DType::kBFloat16: return BFloat16ToFloat(0x7F7F);
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
        float value = 0.0F;
        ToFloat(in.dtype, {in.at(token, head, d), DTypeBytes(in.dtype)}, {&value, 1});
        if (std::isfinite(value) && std::fabs(value) > largest) {
          value = std::copysign(largest, value);
          ++clamped;
        }
        clamped +=
            FromFloat(out.dtype, {&value, 1}, {out.at(token, head, d), DTypeBytes(out.dtype)});
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
  for (const DType one : {in.geometry->dtype, dtype}) {
    if (in.geometry->dtype == dtype || DTypeHoldsNumbers(one)) continue;
    return MakeError(ErrorCode::kUnsupported,
                     std::string(DTypeName(one)) + " is opaque bytes, which have no value in " +
                         std::string(DTypeName(one == dtype ? in.geometry->dtype : dtype)));
  }
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
