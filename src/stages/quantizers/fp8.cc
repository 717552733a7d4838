// Eight-bit floats: relative precision of 3 or 2 bits whatever the scale of a value, saturating,
// with the bytes as symbols. A scale per channel, token or plane brings the largest value of this
// frame to the largest of the format, so that nothing is clamped and small planes do not drown in
// subnormals; it is the frame's own and never one learnt from earlier tokens, which later ones may
// exceed.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>

#include "base/try.h"
#include "kernels/fp8/fp8.h"
#include "kernels/quantize/range_layout.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kFormat = 1;  // and 2 for V, as below
constexpr std::uint8_t kScale = 3;
constexpr std::uint8_t kAxis = 5;

constexpr std::string_view kFormats[] = {"e4m3fn", "e5m2"};
constexpr std::string_view kScales[] = {"none", "power_of_two", "float"};
constexpr std::string_view kAxes[] = {"channel", "token", "tensor"};

constexpr ParameterInfo kParameters[] = {
    {.id = kFormat,
     .name = "format",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .per_plane = true,
     .help = "e4m3fn up to 448 with 3 bits of mantissa, or e5m2 up to 57344 with 2",
     .choices = kFormats},
    {.id = kScale,
     .name = "scale",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 2,
     .default_k = 1,
     .default_v = 1,
     .per_plane = true,
     .help = "by which the largest value of the frame becomes that of the format",
     .choices = kScales},
    {.id = kAxis,
     .name = "axis",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 2,
     .default_k = 0,
     .default_v = 1,
     .per_plane = true,
     .help = "what shares a scale: a channel over the tokens, a token, or all",
     .choices = kAxes},
};

constexpr StageInfo kInfo = {
    .id = 0x0304,
    .name = "fp8",
    .kind = StageKind::kQuantizer,
    .parameters = kParameters,
    .summary = "8-bit floats with a scale per channel, token or tensor",
};

enum class Scale : std::uint8_t { kNone = 0, kPowerOfTwo = 1, kFloat = 2 };

struct Options {
  Options(const Settings& settings, PlaneKind kind)
      : dtype(settings.integer(kFormat, kind) == 0 ? DType::kFloat8E4M3FN : DType::kFloat8E5M2),
        scale(static_cast<Scale>(settings.integer(kScale, kind))) {
    constexpr RangeAxis kAxisOf[] = {RangeAxis::kChannel, RangeAxis::kToken, RangeAxis::kTensor};
    axis = kAxisOf[settings.integer(kAxis, kind)];
  }
  DType dtype;
  Scale scale;
  RangeAxis axis = RangeAxis::kChannel;
};

// Scales are normal floats, whose inverse is one too.
constexpr int kSmallestExponent = -126;
constexpr float kSmallestScale = 0x1p-126F;

struct Fp8State : PlaneState {
  const Options* options = nullptr;
  RangeLayout layout;
  std::span<float> low, high;  // [range]; encoder
  std::span<float> factors;    // [range]: 1 / scale for an encoder, scale for a decoder
  std::atomic<std::uint64_t>* clamped_values = nullptr;  // of the frame
};

// The least exponent at which the format reaches `magnitude`.
int ExponentFor(float magnitude, float largest) {
  if (magnitude == 0.0F) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(magnitude, &exponent);  // [0.5, 1)
  int of_largest = 0;
  const float top = std::frexp(largest, &of_largest);
  return std::max(exponent - of_largest + (mantissa > top ? 1 : 0), kSmallestExponent);
}

constexpr std::size_t kPiece = 256;  // values converted at once, on the stack

// Calls visit(first value, values, factor of each or null, factor of all) for pieces of rows.
template <typename Visit>
void ForEachPiece(const Fp8State& state, std::uint32_t first_row, std::size_t values,
                  const Visit& visit) {
  const std::size_t columns = state.layout.columns();
  const RangeAxis axis = state.options->axis;
  for (std::size_t at = 0; at < values; at += columns) {
    for (std::size_t c = 0; c < columns; c += kPiece) {
      const std::size_t count = std::min(kPiece, columns - c);
      if (state.factors.empty()) {
        visit(at + c, count, nullptr, 1.0F);
      } else if (axis == RangeAxis::kChannel) {
        visit(at + c, count, &state.factors[c], 1.0F);
      } else {
        const std::size_t range = axis == RangeAxis::kToken ? first_row + at / columns : 0;
        visit(at + c, count, nullptr, state.factors[range]);
      }
    }
  }
}

// The largest floats may round up past the end of their range.
void Multiply(const float* values, const float* factors, float factor, std::span<float> out) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (factors == nullptr) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = std::clamp(values[i] * factor, -kLargest, kLargest);
    }
  } else {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = std::clamp(values[i] * factors[i], -kLargest, kLargest);
    }
  }
}

class Fp8 : public Quantizer, public RowQuantizer {
 public:
  explicit Fp8(const Settings& settings)
      : options_{Options(settings, PlaneKind::kKey), Options(settings, PlaneKind::kValue)} {}

  Status Plan(const PlaneContext& /*plane*/, DType /*dtype*/, std::uint32_t heads,
              std::uint32_t dim, SymbolPlane& symbols) const override {
    symbols.columns = heads * dim;
    symbols.alphabet = 256;
    return {};
  }

  [[nodiscard]] const RowQuantizer* rows() const override { return this; }

  PlaneState* Begin(const PlaneContext& plane, PlaneShape shape) const override {
    Fp8State* state = NewState(plane, shape);
    state->clamped_values = plane.frame->clamped_values;
    if (state->options->scale == Scale::kNone) return state;
    state->low = plane.arena->Take<float>(state->layout.count());
    state->high = plane.arena->Take<float>(state->layout.count());
    state->factors = plane.arena->Take<float>(state->layout.count());
    std::fill(state->low.begin(), state->low.end(), std::numeric_limits<float>::infinity());
    std::fill(state->high.begin(), state->high.end(), -std::numeric_limits<float>::infinity());
    return state;
  }

  void Observe(PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows) const override {
    auto& state = *static_cast<Fp8State*>(opaque);
    if (!state.low.empty()) state.layout.Widen(first_row, rows.span(), state.low, state.high);
  }

  Status Finish(PlaneState* opaque, ByteWriter& side) const override {
    auto& state = *static_cast<Fp8State*>(opaque);
    const float largest = LargestFp8(state.options->dtype);
    for (std::size_t i = 0; i < state.factors.size(); ++i) {
      const float magnitude = std::max(std::fabs(state.low[i]), std::fabs(state.high[i]));
      float scale = 1.0F;
      if (state.options->scale == Scale::kPowerOfTwo) {
        const int exponent = ExponentFor(magnitude, largest);
        side.Put(static_cast<std::int8_t>(exponent));
        scale = std::ldexp(1.0F, exponent);
      } else {
        if (magnitude > 0.0F) scale = std::max(magnitude / largest, kSmallestScale);
        side.Put(scale);
      }
      state.factors[i] = 1.0F / scale;
    }
    return {};
  }

  void QuantizeRows(const PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows,
                    std::span<std::uint8_t> symbols) const override {
    const auto& state = *static_cast<const Fp8State*>(opaque);
    const auto codes = std::as_writable_bytes(symbols);
    std::size_t clamped = 0;
    ForEachPiece(state, first_row, rows.values(),
                 [&](std::size_t at, std::size_t count, const float* factors, float factor) {
                   std::array<float, kPiece> scaled;
                   const std::span<float> piece(scaled.data(), count);
                   Multiply(rows.data + at, factors, factor, piece);
                   clamped += FloatToFp8(state.options->dtype, piece, codes.subspan(at, count),
                                         /*keep_infinity=*/false);
                 });
    if (clamped > 0 && state.clamped_values != nullptr) {
      state.clamped_values->fetch_add(clamped, std::memory_order_relaxed);
    }
  }

  Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                 const SymbolPlane& /*symbols*/, ByteReader& side) const override {
    Fp8State* state = NewState(plane, shape);
    const Scale scale = state->options->scale;
    if (scale == Scale::kNone) return state;
    const std::size_t ranges = state->layout.count();
    const std::size_t bytes = scale == Scale::kFloat ? sizeof(float) : sizeof(std::int8_t);
    if (side.remaining() / bytes < ranges) {
      return MakeError(ErrorCode::kCorruptData, std::to_string(ranges) + " scales do not fit in " +
                                                    std::to_string(side.remaining()) + " bytes");
    }
    state->factors = plane.arena->Take<float>(ranges);
    for (float& factor : state->factors) {
      if (scale == Scale::kFloat) {
        KVSERVE_ASSIGN(factor, side.Get<float>());
      } else {
        KVSERVE_ASSIGN(const auto exponent, side.Get<std::int8_t>());
        factor = std::ldexp(1.0F, exponent);
      }
      if (!std::isfinite(factor) || !(factor >= kSmallestScale)) {
        return MakeError(ErrorCode::kCorruptData, "a scale is not a positive normal number");
      }
    }
    return state;
  }

  void DequantizeRows(const PlaneState* opaque, std::uint32_t first_row,
                      std::span<const std::uint8_t> symbols, RealPlane rows) const override {
    const auto& state = *static_cast<const Fp8State*>(opaque);
    (void)Fp8ToFloat(state.options->dtype, std::as_bytes(symbols), rows.span());
    if (state.factors.empty()) return;
    ForEachPiece(state, first_row, rows.values(),
                 [&](std::size_t at, std::size_t count, const float* factors, float factor) {
                   Multiply(rows.data + at, factors, factor, {rows.data + at, count});
                 });
  }

 private:
  [[nodiscard]] Fp8State* NewState(const PlaneContext& plane, PlaneShape shape) const {
    Fp8State* state = plane.arena->New<Fp8State>();
    state->options = &options_[static_cast<std::size_t>(plane.kind)];
    state->layout =
        RangeLayout(state->options->axis, shape.dim, shape.tokens, shape.heads, shape.dim);
    return state;
  }

  std::array<Options, 2> options_;  // [kind]
};

}  // namespace

const StageEntry& Fp8Stage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_quantizer = [](const Settings& settings) -> Result<std::unique_ptr<Quantizer>> {
        return std::make_unique<Fp8>(settings);
      }};
  return entry;
}

}  // namespace kvserve
