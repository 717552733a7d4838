#include <cmath>
#include <cstring>

#include "base/try.h"
#include "pipeline/testing/toy_factories.h"
#include "pipeline/testing/toy_stages.h"

namespace kvserve::testing {
namespace {

constexpr int kZero = 128;  // symbol of a zero
constexpr std::uint8_t kEscape = 255;

template <typename Byte, typename Symbol, typename Copy>
void ForEachElement(const BasicPlaneView<Byte>& plane, Symbol* symbol, Copy copy) {
  const std::size_t size = DTypeBytes(plane.dtype);
  for (std::uint32_t t = 0; t < plane.tokens; ++t) {
    for (std::uint32_t h = 0; h < plane.heads; ++h) {
      for (std::uint32_t d = 0; d < plane.dim; ++d, symbol += size) {
        copy(plane.at(t, h, d), symbol, size);
      }
    }
  }
}

class ToyCopy final : public Quantizer {
 public:
  Status Plan(const PlaneContext& /*plane*/, DType dtype, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    symbols.columns = heads * dim * static_cast<std::uint32_t>(DTypeBytes(dtype));
    symbols.alphabet = 256;
    return {};
  }
  Status QuantizeNative(const PlaneContext& /*plane*/, const ConstPlaneView& values,
                        SymbolPlane& symbols, ByteWriter& /*side*/) const override {
    ForEachElement(values, symbols.symbols.data(),
                   [](const std::byte* from, std::uint8_t* to, std::size_t size) {
                     std::memcpy(to, from, size);
                   });
    return {};
  }
  Status DequantizeNative(const PlaneContext& /*plane*/, const SymbolPlane& symbols,
                          ByteReader& /*side*/, const PlaneView& values) const override {
    ForEachElement(values, symbols.symbols.data(),
                   [](std::byte* to, const std::uint8_t* from, std::size_t size) {
                     std::memcpy(to, from, size);
                   });
    return {};
  }
};

// Class 1 (half the step) for tokens of weight above 1, the raw class for token 0 of a request.
class ToyClasses final : public Quantizer {
 public:
  explicit ToyClasses(const Settings& settings)
      : step_(settings.value(1)), clip_(static_cast<int>(settings.integer(3))) {}

  [[nodiscard]] bool honours_weights() const override { return true; }

  Status Plan(const PlaneContext& /*plane*/, DType /*dtype*/, std::uint32_t heads,
              std::uint32_t dim, SymbolPlane& symbols) const override {
    symbols.columns = heads * dim;
    symbols.alphabet = 256;
    return {};
  }

  Status Quantize(const PlaneContext& plane, ConstRealPlane values, SymbolPlane& symbols,
                  ByteWriter& side) const override {
    symbols.token_classes.assign(values.tokens, 0);
    for (std::uint32_t t = 0; t < values.tokens; ++t) {
      std::uint8_t& token_class = symbols.token_classes[t];
      if (!plane.token_weights.empty() && plane.token_weights[t] > 1.0F) token_class = 1;
      if (plane.tokens.begin + t == 0) token_class = kToyRawClass;
      const float step = ToyStep(step_, token_class);
      for (std::uint32_t c = 0; c < values.columns(); ++c) {
        const std::size_t i = std::size_t{t} * values.columns() + c;
        std::uint8_t& symbol = symbols.symbols[i];
        symbol = kZero;
        if (token_class == kToyRawClass) {
          side.Put(values.data[i]);
          continue;
        }
        const float level = std::round(values.data[i] / step);
        if (std::abs(level) > static_cast<float>(clip_)) {
          symbol = kEscape;
          side.Put(values.data[i]);
        } else {
          symbol = static_cast<std::uint8_t>(kZero + static_cast<int>(level));
        }
      }
    }
    return {};
  }

  // Given the class of the same token in the plane before, if that has as many tokens.
  Status WriteClasses(const FrameContext& /*frame*/, std::span<const SymbolPlane> planes,
                      ByteWriter& out) const override {
    for (std::size_t p = 0; p < planes.size(); ++p) {
      for (std::size_t t = 0; t < planes[p].token_classes.size(); ++t) {
        out.Put(static_cast<std::uint8_t>(planes[p].token_classes[t] - Expected(planes, p, t)));
      }
    }
    return {};
  }
  Status ReadClasses(const FrameContext& /*frame*/, std::span<SymbolPlane> planes,
                     ByteReader& in) const override {
    for (std::size_t p = 0; p < planes.size(); ++p) {
      planes[p].token_classes.assign(planes[p].tokens, 0);
      for (std::size_t t = 0; t < planes[p].tokens; ++t) {
        KVSERVE_ASSIGN(const auto difference, in.Get<std::uint8_t>());
        planes[p].token_classes[t] = static_cast<std::uint8_t>(difference + Expected(planes, p, t));
      }
    }
    return {};
  }

  Status Dequantize(const PlaneContext& /*plane*/, const SymbolPlane& symbols, ByteReader& side,
                    RealPlane values) const override {
    for (std::size_t i = 0; i < values.values(); ++i) {
      const std::uint8_t token_class = symbols.token_classes[i / values.columns()];
      if (token_class == kToyRawClass || symbols.symbols[i] == kEscape) {
        KVSERVE_ASSIGN(values.data[i], side.Get<float>());
      } else {
        values.data[i] =
            static_cast<float>(symbols.symbols[i] - kZero) * ToyStep(step_, token_class);
      }
    }
    return {};
  }

 private:
  static std::uint8_t Expected(std::span<const SymbolPlane> planes, std::size_t p, std::size_t t) {
    return p > 0 && t < planes[p - 1].token_classes.size() ? planes[p - 1].token_classes[t] : 0;
  }

  double step_;
  int clip_;
};

}  // namespace

float ToyStep(double step, std::uint8_t token_class) {
  return static_cast<float>(token_class == 1 ? step / 2 : step);
}

std::unique_ptr<Quantizer> MakeToyCopy() {
  return std::make_unique<ToyCopy>();
}
std::unique_ptr<Quantizer> MakeToyClasses(const Settings& settings) {
  return std::make_unique<ToyClasses>(settings);
}

}  // namespace kvserve::testing
