#include <algorithm>
#include <bit>

#include "base/try.h"
#include "pipeline/testing/toy_factories.h"
#include "pipeline/testing/toy_stages.h"

namespace kvserve::testing {
namespace {

class ToyRaw final : public Codec {
 public:
  Status Encode(const FrameContext& /*frame*/, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    for (const SymbolPlane& plane : planes) out.PutBytes(std::as_bytes(plane.symbols));
    return {};
  }
  Status Decode(const FrameContext& /*frame*/, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    for (SymbolPlane& plane : planes) {
      KVSERVE_ASSIGN(const auto bytes, in.GetBytes(plane.count()));
      std::transform(bytes.begin(), bytes.end(), plane.symbols.begin(),
                     [](std::byte b) { return static_cast<std::uint8_t>(b); });
    }
    return {};
  }
  std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    std::uint64_t bytes = 0;
    for (const SymbolPlane& plane : planes) bytes += plane.count();
    return bytes;
  }
};

unsigned ZigZag(std::uint8_t symbol) {
  const int level = symbol - 128;
  return static_cast<unsigned>(level < 0 ? -2 * level - 1 : 2 * level);
}
std::uint8_t UnZigZag(unsigned code) {
  const int level = (code & 1U) != 0 ? -static_cast<int>(code / 2) - 1 : static_cast<int>(code / 2);
  return static_cast<std::uint8_t>(128 + level);
}

// Rice codes in one bit stream over all planes. The parameter of a token follows from its class and
// from how large its symbols were in the plane two back in coding order (same kind, layer before).
class ToyContext final : public Codec {
 public:
  explicit ToyContext(const Settings& settings) : earlier_(settings.value(1) != 0.0) {}

  Status Encode(const FrameContext& /*frame*/, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    std::uint8_t byte = 0;
    unsigned used = 0;
    const auto put = [&](bool bit) {
      byte = static_cast<std::uint8_t>(byte | (bit ? 1U << used : 0U));
      if (++used < 8) return;
      out.Put(byte);
      byte = 0;
      used = 0;
    };
    for (std::size_t p = 0; p < planes.size(); ++p) {
      for (std::size_t i = 0; i < planes[p].count(); ++i) {
        const unsigned k = Parameter(planes, p, i / planes[p].columns);
        const unsigned code = ZigZag(planes[p].symbols[i]);
        for (unsigned q = code >> k; q > 0; --q) put(true);
        put(false);
        for (unsigned b = 0; b < k; ++b) put(((code >> b) & 1U) != 0);
      }
    }
    if (used > 0) out.Put(byte);
    return {};
  }

  Status Decode(const FrameContext& /*frame*/, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    KVSERVE_ASSIGN(const auto bytes, in.GetBytes(in.remaining()));
    std::size_t bit = 0;
    const auto get = [&]() -> Result<unsigned> {
      if (bit / 8 >= bytes.size()) return MakeError(ErrorCode::kCorruptData, "truncated");
      const unsigned value = (static_cast<unsigned>(bytes[bit / 8]) >> (bit % 8)) & 1U;
      ++bit;
      return value;
    };
    for (std::size_t p = 0; p < planes.size(); ++p) {
      for (std::size_t i = 0; i < planes[p].count(); ++i) {
        const unsigned k = Parameter(planes, p, i / planes[p].columns);
        unsigned code = 0;
        for (;;) {
          KVSERVE_ASSIGN(const unsigned one, get());
          if (one == 0) break;
          code += 1U << k;
          if (code > 512) return MakeError(ErrorCode::kCorruptData, "symbol outside the alphabet");
        }
        for (unsigned b = 0; b < k; ++b) {
          KVSERVE_ASSIGN(const unsigned low, get());
          code |= low << b;
        }
        if (code > 255) return MakeError(ErrorCode::kCorruptData, "symbol outside the alphabet");
        planes[p].symbols[i] = UnZigZag(code);
      }
    }
    if ((bit + 7) / 8 == bytes.size()) return {};
    return MakeError(ErrorCode::kCorruptData, "bytes are left over");
  }

  std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    std::uint64_t bytes = 1;
    for (const SymbolPlane& plane : planes) bytes += plane.count() * 33;
    return bytes;
  }

 private:
  unsigned Parameter(std::span<const SymbolPlane> planes, std::size_t p, std::size_t token) const {
    unsigned k = 2;
    if (!planes[p].token_classes.empty() && planes[p].token_classes[token] == 1) k = 3;
    if (!planes[p].token_classes.empty() && planes[p].token_classes[token] == kToyRawClass) k = 0;
    if (!earlier_ || p < 2 || token >= planes[p - 2].tokens) return k;
    const SymbolPlane& before = planes[p - 2];
    unsigned energy = 0;
    for (std::size_t c = 0; c < before.columns; ++c) {
      energy += ZigZag(before.symbols[token * before.columns + c]);
    }
    const auto width = static_cast<unsigned>(std::bit_width(energy / std::max(1U, before.columns)));
    return std::min(width + (k == 3 ? 1U : 0U), 7U);
  }

  bool earlier_;
};

}  // namespace

std::unique_ptr<Codec> MakeToyRaw() {
  return std::make_unique<ToyRaw>();
}
std::unique_ptr<Codec> MakeToyContext(const Settings& settings) {
  return std::make_unique<ToyContext>(settings);
}

}  // namespace kvserve::testing
