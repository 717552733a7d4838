// Passes the elements through as bytes: the only quantizer besides "lossless" that is bit-exact.
#include "base/plane_bytes.h"
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
    GatherBytes(values, std::as_writable_bytes(symbols.symbols));
    return {};
  }

  Status DequantizeNative(const PlaneContext& /*plane*/, const SymbolPlane& symbols,
                          ByteReader& /*side*/, const PlaneView& values) const override {
    ScatterBytes(std::as_bytes(symbols.symbols), values);
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
