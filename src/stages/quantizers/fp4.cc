// Four-bit floats in blocks: E2M1 elements, an E4M3 scale for each block of channels of a token and
// head, and one float32 scale for the plane, which puts the largest block at the largest E4M3.
// Source: NVIDIA, "NVFP4", 2025. Negative zero has no symbol of its own.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/try.h"
#include "kernels/codebook/float4.h"
#include "kernels/codebook/scaled_runs.h"
#include "kernels/fp8/fp8.h"
#include "pipeline/raw_first_row.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kGroup = 1;     // and 2 for V
constexpr std::uint8_t kRawFirst = 3;  // not per plane

constexpr ParameterInfo kParameters[] = {
    {.id = kGroup,
     .name = "group",
     .type = ParameterType::kInteger,
     .low = 8,
     .high = 1024,
     .default_k = 16,
     .default_v = 16,
     .per_plane = true,
     .unit = "values",
     .help = "channels that share a scale; the last block of a head may be shorter"},
    RawFirstParameter(kRawFirst),
};

constexpr StageInfo kInfo = {
    .id = 0x0306,
    .name = "fp4",
    .kind = StageKind::kQuantizer,
    .parameters = kParameters,
    .summary = "4-bit floats E2M1 with an E4M3 scale per block of channels",
};

// Scales of planes are at least this, so that the inverse of a block's is finite.
constexpr float kLeastPlaneScale = 0x1p-100F;
constexpr DType kScaleType = DType::kFloat8E4M3FN;

struct Fp4State : PlaneState {
  Fp4State(std::uint32_t group, const RawFirstRow& first, PlaneShape shape)
      : raw(first),
        runs(kFloat4, group, shape.heads, shape.dim),
        count((shape.tokens - raw.rows()) * runs.per_row()) {}

  RawFirstRow raw;
  ScaledRuns runs;
  std::size_t count;         // of blocks
  std::span<float> largest;  // [block] magnitudes, then the inverses of scales; encoder
  std::span<float> scales;   // [block]; decoder
};

class Fp4 : public Quantizer, public RowQuantizer {
 public:
  explicit Fp4(const Settings& settings)
      : group_{settings.integer(kGroup, PlaneKind::kKey),
               settings.integer(kGroup, PlaneKind::kValue)},
        raw_first_(settings.integer(kRawFirst) != 0) {}

  Status Plan(const PlaneContext& plane, DType /*dtype*/, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    symbols.tokens = plane.tokens.size() - RawFirstRow::Rows(raw_first_, plane);
    symbols.columns = heads * dim;
    symbols.alphabet = static_cast<std::uint32_t>(kFloat4Points.size());
    return {};
  }

  [[nodiscard]] ScaleSource scale_source(PlaneKind /*kind*/) const override {
    return ScaleSource::kFrame;
  }
  [[nodiscard]] const RowQuantizer* rows() const override { return this; }

  PlaneState* Begin(const PlaneContext& plane, PlaneShape shape) const override {
    Fp4State* state = NewState(plane, shape);
    state->largest = plane.arena->Take<float>(state->count);
    return state;
  }

  void Observe(PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows) const override {
    auto& state = *static_cast<Fp4State*>(opaque);
    state.raw.Keep(first_row, rows);
    std::size_t row = 0;
    const std::span<const float> values = state.raw.Others(first_row, rows, row);
    state.runs.ForEach(row, values.size(), [&](std::size_t at, std::size_t count, std::size_t run) {
      float largest = 0.0F;
      for (const float value : values.subspan(at, count)) {
        largest = std::max(largest, std::fabs(value));
      }
      state.largest[run] = largest;
    });
  }

  // From here on `largest` holds the inverses of the scales that the decoder will have.
  Status Finish(PlaneState* opaque, ByteWriter& side) const override {
    auto& state = *static_cast<Fp4State*>(opaque);
    state.raw.Write(side);
    if (state.count == 0) return {};
    const float largest = *std::max_element(state.largest.begin(), state.largest.end());
    const float of_plane =
        std::max(largest / (kLargestFloat4 * LargestFp8(kScaleType)), kLeastPlaneScale);
    side.Put(of_plane);
    for (float& value : state.largest) value = value / kLargestFloat4 / of_plane;
    const auto codes = side.Grow(state.count);
    (void)FloatToFp8(kScaleType, state.largest, codes, /*keep_infinity=*/false);
    (void)Fp8ToFloat(kScaleType, codes, state.largest);
    for (float& value : state.largest) {
      const float scale = value * of_plane;
      value = scale > 0.0F ? 1.0F / scale : 0.0F;
    }
    return {};
  }

  void QuantizeRows(const PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows,
                    std::span<std::uint8_t> symbols) const override {
    const auto& state = *static_cast<const Fp4State*>(opaque);
    std::size_t row = 0;
    const std::span<const float> values = state.raw.Others(first_row, rows, row);
    state.runs.Quantize(row, values, state.largest, symbols);
  }

  Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                 const SymbolPlane& /*symbols*/, ByteReader& side) const override {
    Fp4State* state = NewState(plane, shape);
    KVSERVE_TRY(state->raw.Read(side));
    if (state->count == 0) return state;
    KVSERVE_ASSIGN(const auto of_plane, side.Get<float>());
    if (!std::isfinite(of_plane) || !(of_plane >= kLeastPlaneScale)) {
      return MakeError(ErrorCode::kCorruptData, "a plane's scale is not finite or below 2^-100");
    }
    KVSERVE_ASSIGN(const auto codes, side.GetBytes(state->count));
    const bool usable = std::all_of(codes.begin(), codes.end(), [](std::byte code) {
      return code < std::byte{0x7F};  // neither negative nor not a number
    });
    if (!usable) return MakeError(ErrorCode::kCorruptData, "a block's scale is not positive");
    state->scales = plane.arena->Take<float>(state->count);
    (void)Fp8ToFloat(kScaleType, codes, state->scales);
    for (float& scale : state->scales) scale *= of_plane;
    return state;
  }

  void DequantizeRows(const PlaneState* opaque, std::uint32_t first_row,
                      std::span<const std::uint8_t> symbols, RealPlane rows) const override {
    const auto& state = *static_cast<const Fp4State*>(opaque);
    state.raw.Restore(first_row, rows);
    std::size_t row = 0;
    const std::span<float> values = state.raw.Others(first_row, rows, row);
    state.runs.Dequantize(row, symbols, state.scales, values);
  }

 private:
  [[nodiscard]] Fp4State* NewState(const PlaneContext& plane, PlaneShape shape) const {
    return plane.arena->New<Fp4State>(group_[static_cast<std::size_t>(plane.kind)],
                                      RawFirstRow(raw_first_, plane, shape), shape);
  }

  std::array<std::uint32_t, 2> group_;  // [kind]
  bool raw_first_;
};

}  // namespace

const StageEntry& Fp4Stage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_quantizer = [](const Settings& settings) -> Result<std::unique_ptr<Quantizer>> {
        return std::make_unique<Fp4>(settings);
      }};
  return entry;
}

}  // namespace kvserve
