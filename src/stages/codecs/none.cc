// Symbols as bytes, one after the other: the baseline that every other codec has to beat.
#include <algorithm>
#include <cstring>

#include "base/try.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr StageInfo kInfo = {
    .id = 0x0401,
    .name = "none",
    .kind = StageKind::kCodec,
    .lossless = true,
    .summary = "one byte per symbol",
};

class NoneCodec : public Codec {
 public:
  Status Encode(const FrameContext& /*frame*/, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    for (const auto& plane : planes) out.PutBytes(std::as_bytes(plane.symbols));
    return {};
  }

  Status Decode(const FrameContext& /*frame*/, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    for (auto& plane : planes) {
      KVSERVE_ASSIGN(const auto bytes, in.GetBytes(plane.count()));
      if (bytes.empty()) continue;
      std::memcpy(plane.symbols.data(), bytes.data(), bytes.size());
      const auto largest = *std::max_element(plane.symbols.begin(), plane.symbols.end());
      if (largest >= plane.alphabet) {
        return MakeError(ErrorCode::kCorruptData, "symbol " + std::to_string(largest) +
                                                      " in an alphabet of " +
                                                      std::to_string(plane.alphabet));
      }
    }
    return {};
  }

  [[nodiscard]] std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    std::uint64_t bytes = 0;
    for (const auto& plane : planes) bytes += plane.count();
    return bytes;
  }
};

}  // namespace

const StageEntry& NoneCodecStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_codec = [](const Settings&) -> Result<std::unique_ptr<Codec>> {
        return std::make_unique<NoneCodec>();
      }};
  return entry;
}

}  // namespace kvserve
