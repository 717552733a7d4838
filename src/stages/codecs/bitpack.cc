// Fixed-length packing, plane by plane: no statistics, so the fastest codec that beats bytes.
#include "kernels/bitpack/bitpack.h"

#include "base/try.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr StageInfo kInfo = {
    .id = 0x0402,
    .name = "bitpack",
    .kind = StageKind::kCodec,
    .lossless = true,
    .summary = "packed digits, e.g. 4 bits for 16 levels and 1.6 for 3",
};

class BitPack : public Codec {
 public:
  Status Encode(const FrameContext& /*frame*/, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    for (const auto& plane : planes) {
      PackSymbols(plane.symbols, plane.alphabet,
                  out.Grow(PackedBytes(plane.count(), plane.alphabet)));
    }
    return {};
  }

  Status Decode(const FrameContext& /*frame*/, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    for (auto& plane : planes) {
      KVSERVE_ASSIGN(const auto bytes, in.GetBytes(PackedBytes(plane.count(), plane.alphabet)));
      KVSERVE_TRY(UnpackSymbols(bytes, plane.alphabet, plane.symbols));
    }
    return {};
  }

  [[nodiscard]] std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    std::uint64_t bytes = 0;
    for (const auto& plane : planes) bytes += PackedBytes(plane.count(), plane.alphabet);
    return bytes;
  }
};

}  // namespace

const StageEntry& BitPackStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_codec = [](const Settings&) -> Result<std::unique_ptr<Codec>> {
        return std::make_unique<BitPack>();
      }};
  return entry;
}

}  // namespace kvserve
