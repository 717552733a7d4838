// Zstandard over the symbols of all planes, one byte per symbol: a general-purpose yardstick.
#include <zstd.h>

#include <algorithm>
#include <memory>

#include "base/try.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kLevel = 1;

// First byte of the stream.
constexpr std::uint8_t kStored = 0;  // one byte per symbol follows
constexpr std::uint8_t kFrame = 1;   // one zstd frame follows

constexpr ParameterInfo kParameters[] = {
    {.id = kLevel,
     .name = "level",
     .type = ParameterType::kInteger,
     .low = 1,
     .high = 19,
     .default_k = 1,
     .help = "compression level of zstd"},
};

constexpr StageInfo kInfo = {
    .id = 0x0404,
    .name = "zstd",
    .kind = StageKind::kCodec,
    .lossless = true,
    .parameters = kParameters,
    .summary = "Zstandard over bytes of symbols",
};

std::size_t TotalSymbols(std::span<const SymbolPlane> planes) {
  std::size_t total = 0;
  for (const auto& plane : planes) total += plane.count();
  return total;
}

// A thread's contexts are kept: their tables take longer to allocate than a small frame to code.
// Null without memory.
ZSTD_CCtx* Compressor() {
  thread_local const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                                  &ZSTD_freeCCtx);
  return context.get();
}

ZSTD_DCtx* Decompressor() {
  thread_local const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                                  &ZSTD_freeDCtx);
  return context.get();
}

tl::unexpected<Error> NoMemory() {
  return MakeError(ErrorCode::kResourceExhausted, "no memory for zstd");
}

class Zstd : public Codec {
 public:
  explicit Zstd(int level) : level_(level) {}

  Status Encode(const FrameContext& frame, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    ZSTD_CCtx* context = Compressor();
    if (context == nullptr) return NoMemory();
    const auto symbols = frame.arena->Take<std::uint8_t>(TotalSymbols(planes));
    auto to = symbols.begin();
    for (const auto& plane : planes) {
      to = std::copy(plane.symbols.begin(), plane.symbols.end(), to);
    }
    out.Put(kFrame);
    const std::size_t before = out.size();
    const auto room = out.Grow(ZSTD_compressBound(symbols.size()));
    const std::size_t bytes = ZSTD_compressCCtx(context, room.data(), room.size(), symbols.data(),
                                                symbols.size(), level_);
    if (ZSTD_isError(bytes) != 0) {
      return MakeError(ErrorCode::kInternal, std::string("zstd: ") + ZSTD_getErrorName(bytes));
    }
    out.bytes().resize(before + bytes);
    if (bytes < symbols.size()) return {};
    out.bytes().resize(before - sizeof(kFrame));  // did not shrink: as it is, so that nothing grows
    out.Put(kStored);
    out.PutBytes(std::as_bytes(symbols));
    return {};
  }

  Status Decode(const FrameContext& frame, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    const std::size_t total = TotalSymbols(planes);
    KVSERVE_ASSIGN(const auto form, in.Get<std::uint8_t>());
    KVSERVE_ASSIGN(const auto bytes, in.GetBytes(in.remaining()));
    if (form == kStored && bytes.size() == total) {
      return Distribute({reinterpret_cast<const std::uint8_t*>(bytes.data()), total}, planes);
    }
    if (form != kFrame) {
      return MakeError(ErrorCode::kCorruptData, "neither stored symbols nor a zstd frame");
    }
    // One zstd frame that says the very size that the shapes ask for, and nothing after it.
    const auto stated = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
    if (stated != total ||
        ZSTD_findFrameCompressedSize(bytes.data(), bytes.size()) != bytes.size()) {
      return MakeError(ErrorCode::kCorruptData,
                       "not one zstd frame of " + std::to_string(total) + " symbols");
    }
    ZSTD_DCtx* context = Decompressor();
    if (context == nullptr) return NoMemory();
    const auto symbols = frame.arena->Take<std::uint8_t>(total);
    const std::size_t written =
        ZSTD_decompressDCtx(context, symbols.data(), symbols.size(), bytes.data(), bytes.size());
    if (ZSTD_isError(written) != 0 || written != total) {
      return MakeError(ErrorCode::kCorruptData, "zstd stream is damaged");
    }
    return Distribute(symbols, planes);
  }

  [[nodiscard]] std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    return 1 + ZSTD_compressBound(TotalSymbols(planes));
  }

 private:
  static Status Distribute(std::span<const std::uint8_t> symbols, std::span<SymbolPlane> planes) {
    for (auto& plane : planes) {
      if (plane.count() == 0) continue;
      const auto part = symbols.first(plane.count());
      symbols = symbols.subspan(plane.count());
      std::uint8_t largest = 0;  // a plain loop vectorises where max_element does not
      for (const std::uint8_t symbol : part) largest = std::max(largest, symbol);
      if (largest >= plane.alphabet) {
        return MakeError(ErrorCode::kCorruptData,
                         "a symbol is outside the alphabet of " + std::to_string(plane.alphabet));
      }
      std::copy(part.begin(), part.end(), plane.symbols.begin());
    }
    return {};
  }

  int level_;
};

}  // namespace

const StageEntry& ZstdStage() {
  static const StageEntry entry = {
      .info = &kInfo, .make_codec = [](const Settings& settings) -> Result<std::unique_ptr<Codec>> {
        return std::make_unique<Zstd>(static_cast<int>(settings.integer(kLevel)));
      }};
  return entry;
}

}  // namespace kvserve
