// Passes the elements through as bytes: the only quantizer besides "lossless" that is bit-exact.
#include <cstring>

#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr StageInfo kInfo = {
    .id = 0x0301,
    .name = "none",
    .kind = StageKind::kQuantizer,
    .lossless = true,
    .summary = "elements as raw little-endian bytes",
    .domain = QuantizerDomain::kNative,
};

// Calls copy(element bytes of the plane, offset in the symbols, bytes) for runs that are contiguous
// in both.
template <typename Byte, typename Copy>
void ForEachRun(const BasicPlaneView<Byte>& plane, const Copy& copy) {
  const std::size_t size = DTypeBytes(plane.dtype);
  if (plane.contiguous()) {
    copy(plane.data, 0, plane.values() * size);
    return;
  }
  std::size_t offset = 0;
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      if (plane.dim_stride == 1) {
        copy(plane.at(token, head, 0), offset, plane.dim * size);
        offset += plane.dim * size;
        continue;
      }
      for (std::uint32_t d = 0; d < plane.dim; ++d, offset += size) {
        copy(plane.at(token, head, d), offset, size);
      }
    }
  }
}

class NoneQuantizer : public Quantizer {
 public:
  Status Plan(const PlaneContext& /*plane*/, DType dtype, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    const std::uint64_t columns = std::uint64_t{heads} * dim * DTypeBytes(dtype);
    if (columns > UINT32_MAX) {
      return MakeError(ErrorCode::kUnsupported,
                       "a token of " + std::to_string(columns) + " bytes is too wide");
    }
    symbols.columns = static_cast<std::uint32_t>(columns);
    symbols.alphabet = 256;
    return {};
  }

  Status QuantizeNative(const PlaneContext& /*plane*/, const ConstPlaneView& values,
                        SymbolPlane& symbols, ByteWriter& /*side*/) const override {
    ForEachRun(values, [&](const std::byte* from, std::size_t offset, std::size_t bytes) {
      std::memcpy(symbols.symbols.data() + offset, from, bytes);
    });
    return {};
  }

  Status DequantizeNative(const PlaneContext& /*plane*/, const SymbolPlane& symbols,
                          ByteReader& /*side*/, const PlaneView& values) const override {
    ForEachRun(values, [&](std::byte* to, std::size_t offset, std::size_t bytes) {
      std::memcpy(to, symbols.symbols.data() + offset, bytes);
    });
    return {};
  }
};

}  // namespace

const StageEntry& NoneQuantizerStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_quantizer = [](const Settings&) -> Result<std::unique_ptr<Quantizer>> {
        return std::make_unique<NoneQuantizer>();
      }};
  return entry;
}

}  // namespace kvserve
