// Uniform quantization with classes: retrieval heads get more levels than streaming heads (MixHQ),
// the first and last layers levels of their own, and tokens steps by the weights of selectors, or
// none at all. Ranges are those of `uniform`, over the tokens that are kept; the request's first
// token is kept apart in 16 bits, as there.
#include <algorithm>
#include <array>
#include <string>

#include "base/try.h"
#include "kernels/convert/raw_floats.h"
#include "kernels/quantize/classed_plane.h"
#include "pipeline/class_runs.h"
#include "pipeline/dropped_tokens.h"
#include "pipeline/head_classes.h"
#include "pipeline/raw_first_row.h"
#include "pipeline/stage.h"
#include "pipeline/token_classes.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kLevels = 1;  // and 2 for V, as below
constexpr std::uint8_t kLowLevels = 3;
constexpr std::uint8_t kLowShare = 5;  // not per plane
constexpr std::uint8_t kScope = 6;     // not per plane
constexpr std::uint8_t kFirstLayers = 7;
constexpr std::uint8_t kFirstLevels = 9;
constexpr std::uint8_t kLastLayers = 11;
constexpr std::uint8_t kLastLevels = 13;
constexpr std::uint8_t kAxis = 15;
constexpr std::uint8_t kRawFirst = 17;  // not per plane
constexpr std::uint8_t kReconstruct = 18;
constexpr std::uint8_t kGrids = 20;  // not per plane

constexpr std::string_view kScopes[] = {"layer", "model"};
constexpr std::string_view kAxes[] = {"channel", "token", "tensor"};
constexpr RangeAxis kRangeAxes[] = {RangeAxis::kChannel, RangeAxis::kToken, RangeAxis::kTensor};
constexpr std::string_view kReconstructions[] = {"midpoint", "mean"};
constexpr std::string_view kGridForms[] = {"short", "float16"};

constexpr ParameterInfo LevelsParameter(std::uint8_t id, std::string_view name, double k, double v,
                                        std::string_view help) {
  return {.id = id,
          .name = name,
          .type = ParameterType::kInteger,
          .low = 2,
          .high = 256,
          .default_k = k,
          .default_v = v,
          .per_plane = true,
          .help = help};
}

constexpr ParameterInfo LayersParameter(std::uint8_t id, std::string_view name,
                                        std::string_view help) {
  return {.id = id,
          .name = name,
          .type = ParameterType::kInteger,
          .low = 0,
          .high = 1024,
          .per_plane = true,
          .unit = "layers",
          .help = help};
}

constexpr ParameterInfo kParameters[] = {
    LevelsParameter(kLevels, "levels", 16, 8, "quantization levels of retrieval heads"),
    LevelsParameter(kLowLevels, "low_levels", 4, 4, "quantization levels of streaming heads"),
    {.id = kLowShare,
     .name = "low_share",
     .type = ParameterType::kReal,
     .low = 0,
     .high = 1,
     .help = "share of heads that count as streaming heads, by the artefact's scores; 0: none"},
    {.id = kScope,
     .name = "scope",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .help = "the share holds in every layer, or over all heads of the model",
     .choices = kScopes},
    LayersParameter(kFirstLayers, "first_layers", "layers at the start with first_levels"),
    LevelsParameter(kFirstLevels, "first_levels", 32, 16,
                    "levels of all heads of the first layers"),
    LayersParameter(kLastLayers, "last_layers", "layers at the end with last_levels"),
    LevelsParameter(kLastLevels, "last_levels", 32, 16, "levels of all heads of the last layers"),
    {.id = kAxis,
     .name = "axis",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 2,
     .default_k = 0,
     .default_v = 1,
     .per_plane = true,
     .help = "what shares a range: a channel over the tokens, a token, or all",
     .choices = kAxes},
    RawFirstParameter(kRawFirst),
    {.id = kReconstruct,
     .name = "reconstruct",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .per_plane = true,
     .help = "decode to the middle of a bin or to the mean of the values in it",
     .choices = kReconstructions},
    {.id = kGrids,
     .name = "grids",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .help = "how zero and step of a range are kept: rounded to one or two bytes, or as float16",
     .choices = kGridForms},
};

constexpr StageInfo kInfo = {
    .id = 0x0305,
    .name = "mixed",
    .kind = StageKind::kQuantizer,
    .parameters = kParameters,
    .summary = "uniform quantization, levels by head, layer and the selectors' token weights",
};

class Mixed : public Quantizer {
 public:
  explicit Mixed(const Settings& settings)
      : settings_(settings),
        share_{settings.value(kLowShare), settings.integer(kScope) != 0},
        raw_first_(settings.integer(kRawFirst) != 0) {
    for (const PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
      UniformOptions& options = options_[static_cast<std::size_t>(kind)];
      options.axis = kRangeAxes[settings.integer(kAxis, kind)];
      options.means = settings.integer(kReconstruct, kind) != 0;
      options.half = settings.integer(kGrids) != 0;
    }
  }

  [[nodiscard]] bool honours_weights() const override { return true; }
  [[nodiscard]] bool needs_artefact() const override { return share_.low > 0.0; }
  [[nodiscard]] ScaleSource scale_source(PlaneKind /*kind*/) const override {
    return ScaleSource::kFrame;
  }

  Status Plan(const PlaneContext& plane, DType /*dtype*/, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    symbols.tokens = plane.tokens.size() - RawRows(plane);
    symbols.columns = heads * dim;
    const HeadLevels levels = LevelsOf(*plane.frame, plane.layer, plane.kind);
    if (needs_artefact() && levels[kHighHead] != levels[kLowHead]) {
      KVSERVE_TRY(
          ClassifyHeads(share_, plane.frame->artefact, plane.layer, heads, symbols.head_classes));
    }
    LayRuns(levels, symbols);
    return {};
  }

  Status Classify(const FrameContext& frame, std::span<const std::vector<float>> weights,
                  std::span<SymbolPlane> planes) const override {
    for (std::size_t p = 0; p < weights.size(); ++p) {
      SymbolPlane& plane = planes[p];
      const auto coded = std::span(weights[p]).last(plane.tokens);
      plane.token_classes.resize(plane.tokens);
      std::transform(coded.begin(), coded.end(), plane.token_classes.begin(), TokenClassOf);
      const bool nominal =
          std::all_of(plane.token_classes.begin(), plane.token_classes.end(),
                      [](std::uint8_t token_class) { return token_class == kNominalClass; });
      if (nominal) plane.token_classes.clear();
      LayRuns(LevelsOf(frame, plane.layer, plane.kind), plane);
    }
    return {};
  }

  Status WriteClasses(const FrameContext& /*frame*/, std::span<const SymbolPlane> planes,
                      ByteWriter& out) const override {
    WriteTokenClasses(planes, out);
    return {};
  }

  Status ReadClasses(const FrameContext& frame, std::span<SymbolPlane> planes,
                     ByteReader& in) const override {
    KVSERVE_TRY(ReadTokenClasses(in, planes));
    for (SymbolPlane& plane : planes) LayRuns(LevelsOf(frame, plane.layer, plane.kind), plane);
    return {};
  }

  Status Quantize(const PlaneContext& plane, ConstRealPlane values, SymbolPlane& symbols,
                  ByteWriter& side) const override {
    const std::size_t raw = std::size_t{RawRows(plane)} * values.columns();
    if (raw > 0) {
      WriteRawFloats(plane.frame->geometry->dtype, values.span().first(raw), side);
    }
    const HeadLevels levels = LevelsOf(*plane.frame, plane.layer, plane.kind);
    const ClassRuns mixed = ListRuns(levels, symbols, values.heads, *plane.arena);
    const UniformOptions options = OptionsOf(plane, levels);
    ClassedPlane classed(options, mixed.kept, values.heads, values.dim, *plane.arena);
    classed.Encode(values.span().subspan(raw), mixed.runs, side, symbols.symbols);
    return {};
  }

  Status Dequantize(const PlaneContext& plane, const SymbolPlane& symbols, ByteReader& side,
                    RealPlane values) const override {
    const std::size_t raw = std::size_t{RawRows(plane)} * values.columns();
    if (raw > 0) KVSERVE_TRY(ReadRawFloats(side, values.span().first(raw)));
    ZeroDropped(symbols, values);
    const HeadLevels levels = LevelsOf(*plane.frame, plane.layer, plane.kind);
    const ClassRuns mixed = ListRuns(levels, symbols, values.heads, *plane.arena);
    const UniformOptions options = OptionsOf(plane, levels);
    ClassedPlane classed(options, mixed.kept, values.heads, values.dim, *plane.arena);
    return classed.Decode(side, mixed.runs, symbols.symbols, values.span().subspan(raw));
  }

 private:
  [[nodiscard]] std::uint32_t RawRows(const PlaneContext& plane) const {
    return RawFirstRow::Rows(raw_first_, plane);
  }

  // Of a layer at either end all heads alike.
  [[nodiscard]] HeadLevels LevelsOf(const FrameContext& frame, std::uint32_t layer,
                                    PlaneKind kind) const {
    const std::size_t layers = frame.geometry->layers.size();
    const auto both = [&](std::uint8_t id) {
      const std::uint32_t levels = settings_.integer(id, kind);
      return HeadLevels{levels, levels};
    };
    if (layer < settings_.integer(kFirstLayers, kind)) return both(kFirstLevels);
    if (layers - layer <= settings_.integer(kLastLayers, kind)) return both(kLastLevels);
    return {settings_.integer(kLevels, kind), settings_.integer(kLowLevels, kind)};
  }

  [[nodiscard]] UniformOptions OptionsOf(const PlaneContext& plane,
                                         const HeadLevels& levels) const {
    UniformOptions options = options_[static_cast<std::size_t>(plane.kind)];
    options.levels = levels[kHighHead];
    return options;
  }

  Settings settings_;
  HeadShare share_;
  bool raw_first_;
  std::array<UniformOptions, 2> options_;  // [kind]; levels depend on the layer
};

}  // namespace

const StageEntry& MixedStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_quantizer = [](const Settings& settings) -> Result<std::unique_ptr<Quantizer>> {
        return std::make_unique<Mixed>(settings);
      }};
  return entry;
}

}  // namespace kvserve
