// Prediction across layers: what the decoded planes before say of a plane's components, linearly
// and with an artefact's weights, is taken away before quantization and added after it. K of a
// layer is predicted from K and V of the layers before, as many as the artefact says, V also from K
// of its own layer. All sums are integers over histories in 1/64 of a step, so that both sides
// agree on every bit.
#include <algorithm>
#include <array>
#include <string>

#include "base/try.h"
#include "kernels/predict_rows/predict_rows.h"
#include "pipeline/plane_switch.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kOn = 1;  // and 2 for V

constexpr ParameterInfo kParameters[] = {
    OnParameter(kOn, "predict this plane"),
};

constexpr StageInfo kInfo = {
    .id = 0x0207,
    .name = "predict",
    .kind = StageKind::kTransform,
    .parameters = kParameters,
    .summary = "what earlier planes of the token predict, from a calibration artefact",
};

std::size_t Columns(const KvGeometry& geometry, std::size_t layer, PlaneKind kind) {
  const LayerGeometry& shape = geometry.layers[layer];
  return std::size_t{shape.kv_heads} * (kind == PlaneKind::kKey ? shape.k_dim : shape.v_dim);
}

// Components of K and V of a layer.
std::size_t Columns(const KvGeometry& geometry, std::size_t layer) {
  return Columns(geometry, layer, PlaneKind::kKey) + Columns(geometry, layer, PlaneKind::kValue);
}

// Components of the layers first..layer-1.
std::size_t Columns(const KvGeometry& geometry, std::size_t first, std::size_t layer) {
  std::size_t columns = 0;
  for (; first < layer; ++first) columns += Columns(geometry, first);
  return columns;
}

// Where the components of a layer's planes stand in a row of inputs: behind those of the layers
// before, which ascend. Its V is not an input of its own planes but of the next layer's.
struct InputLayout {
  InputLayout() = default;
  InputLayout(const KvGeometry& geometry, std::uint32_t layers, std::size_t layer)
      : first(layer - std::min<std::size_t>(layer, layers)),
        key(Columns(geometry, first, layer)),
        value(key + Columns(geometry, layer, PlaneKind::kKey)),
        end(key + Columns(geometry, layer)) {}

  std::size_t first = 0;  // layer
  std::size_t key = 0;
  std::size_t value = 0;
  std::size_t end = 0;
};

// The planes that a tile has passed.
struct Tile : PlaneState {
  TokenRange tokens;
  std::uint32_t layers = 1;
  std::size_t stride = 0;
  std::span<std::int16_t> inputs;  // [token][stride] of the layer in hand, and its V
  std::span<float> predicted;      // [row of the open plane][predicted_stride]
  std::size_t predicted_stride = 0;
  // The open plane.
  bool begun = false;
  std::uint32_t layer = 0;
  PlaneKind kind = PlaneKind::kKey;
  InputLayout layout;
  std::size_t columns = 0;
  std::size_t first_row = 0;  // of the tile
  bool predicts = false;

  // Where the open plane's components go.
  [[nodiscard]] std::int16_t* Own(std::size_t row) const {
    return &inputs[row * stride + (kind == PlaneKind::kKey ? layout.key : layout.value)];
  }
};

class Predict : public Transform, public RowPredictor {
 public:
  explicit Predict(const Settings& settings) : settings_(settings) {}

  [[nodiscard]] bool needs_feedback() const override { return true; }
  [[nodiscard]] bool needs_artefact() const override {
    return On(PlaneKind::kKey) || On(PlaneKind::kValue);
  }
  [[nodiscard]] bool needs_components() const override { return needs_artefact(); }
  [[nodiscard]] ScaleSource scale_source(PlaneKind kind) const override {
    return On(kind) ? ScaleSource::kCalibrated : ScaleSource::kUnit;
  }
  [[nodiscard]] const RowPredictor* predictor() const override { return this; }

  Status Forward(const PlaneContext& plane, RealPlane values, ByteWriter& /*side*/) const override {
    KVSERVE_ASSIGN(const auto predicted, FromDecoded(plane, values));
    Subtract(predicted, PaddedColumns(values.columns()), values);
    return {};
  }
  Status Inverse(const PlaneContext& plane, RealPlane values, ByteReader& /*side*/) const override {
    KVSERVE_ASSIGN(const auto predicted, FromDecoded(plane, values));
    Add(predicted, PaddedColumns(values.columns()), values);
    return {};
  }

  [[nodiscard]] PlaneState* BeginTile(const FrameContext& frame, TokenRange tokens,
                                      Arena& arena) const override {
    auto* tile = arena.New<Tile>();
    const KvGeometry& geometry = *frame.geometry;
    tile->layers = Layers(frame.artefact);
    std::size_t widest = 0;
    for (std::size_t layer = 0; layer < geometry.layers.size(); ++layer) {
      const InputLayout layout(geometry, tile->layers, layer);
      tile->stride = std::max(tile->stride, layout.end);
      widest = std::max({widest, layout.value - layout.key, layout.end - layout.value});
    }
    tile->tokens = tokens;
    tile->stride = PaddedInputs(tile->stride);
    tile->predicted_stride = PaddedColumns(widest);
    tile->inputs = arena.TakeZeroed<std::int16_t>(tokens.size() * tile->stride);
    tile->predicted = arena.Take<float>(tokens.size() * tile->predicted_stride);
    return tile;
  }

  [[nodiscard]] Status OpenPlane(PlaneState* state, const PlaneContext& plane,
                                 PlaneShape shape) const override {
    auto& tile = *static_cast<Tile*>(state);
    if (!tile.begun || tile.layer != plane.layer) {
      EnterLayer(*plane.frame->geometry, plane.layer, tile);
    }
    tile.kind = plane.kind;
    tile.columns = Columns(*plane.frame->geometry, plane.layer, plane.kind);
    tile.first_row = tile.tokens.size() - shape.tokens;
    ForgetMissing(tile);
    if (shape.tokens == 0) return {};
    KVSERVE_ASSIGN(const PackedPredictor* predictor, Calibrated(plane, shape.columns()));
    tile.predicts = predictor != nullptr;
    if (!tile.predicts) return {};
    PredictRows(*predictor, &tile.inputs[tile.first_row * tile.stride], tile.stride, shape.tokens,
                tile.predicted.data(), tile.predicted_stride);
    return {};
  }

  void ForwardRows(const PlaneState* state, RealPlane rows) const override {
    const auto& tile = *static_cast<const Tile*>(state);
    if (tile.predicts) Subtract(tile.predicted, tile.predicted_stride, rows);
  }

  void InverseRows(PlaneState* state, RealPlane rows) const override {
    auto& tile = *static_cast<Tile*>(state);
    if (tile.predicts) Add(tile.predicted, tile.predicted_stride, rows);
    const std::size_t columns = rows.columns();
    for (std::size_t row = 0; row < rows.tokens; ++row) {
      RoundHistory(rows.span().subspan(row * columns, columns), tile.Own(tile.first_row + row));
    }
  }

 private:
  [[nodiscard]] bool On(PlaneKind kind) const { return settings_.integer(kOn, kind) != 0; }

  static std::uint32_t Layers(const CalibrationArtefact* artefact) {
    return artefact == nullptr ? 1 : artefact->predictor_layers();
  }

  // Rows lose what the layer is not predicted from any more; what the frame lacks counts as zeros.
  static void EnterLayer(const KvGeometry& geometry, std::uint32_t layer, Tile& tile) {
    const InputLayout before = tile.layout;
    const std::size_t next = tile.begun ? tile.layer + std::size_t{1} : layer;
    tile.layout = InputLayout(geometry, tile.layers, layer);
    const std::size_t kept_from = std::max(tile.layout.first, before.first);
    for (std::size_t row = 0; row < tile.tokens.size() && tile.begun; ++row) {
      std::int16_t* const inputs = &tile.inputs[row * tile.stride];
      std::int16_t* to = inputs;
      if (kept_from < next) {
        const std::size_t gone = Columns(geometry, before.first, kept_from);
        to = inputs + before.end - gone;
        if (gone > 0) std::copy(inputs + gone, inputs + before.end, inputs);
      }
      std::fill(to, inputs + tile.stride, std::int16_t{0});
    }
    tile.begun = true;
    tile.layer = layer;
  }

  // Rows that the open plane's layer does not hold count as zeros.
  static void ForgetMissing(const Tile& tile) {
    for (std::size_t row = 0; row < tile.first_row; ++row) {
      std::fill_n(tile.Own(row), tile.columns, std::int16_t{0});
    }
  }

  // Null where nothing is predicted.
  [[nodiscard]] Result<const PackedPredictor*> Calibrated(const PlaneContext& plane,
                                                          std::size_t columns) const {
    if (!On(plane.kind)) return nullptr;
    const CalibrationArtefact* artefact = plane.frame->artefact;
    const Predictor* predictor =
        artefact == nullptr ? nullptr : artefact->predictor(plane.layer, plane.kind);
    if (predictor == nullptr) return nullptr;
    const InputLayout layout(*plane.frame->geometry, Layers(artefact), plane.layer);
    const std::size_t inputs = plane.kind == PlaneKind::kKey ? layout.key : layout.value;
    if (predictor->inputs != inputs || predictor->scale.size() != columns) {
      return MakeError(ErrorCode::kMismatch,
                       "the calibration artefact predicts " +
                           std::to_string(predictor->scale.size()) + " components from " +
                           std::to_string(predictor->inputs) + " where the plane has " +
                           std::to_string(columns) + " and " + std::to_string(inputs) + " before");
    }
    return artefact->packed_predictors().Get<PackedPredictor>(
        2 * std::size_t{plane.layer} + static_cast<std::size_t>(plane.kind),
        [&] { return PackPredictor(predictor->weights, predictor->scale); });
  }

  // What is predicted from whole planes, [token][padded column]; empty: nothing.
  [[nodiscard]] Result<std::span<const float>> FromDecoded(const PlaneContext& plane,
                                                           const RealPlane& values) const {
    KVSERVE_ASSIGN(const PackedPredictor* predictor, Calibrated(plane, values.columns()));
    if (predictor == nullptr) return std::span<const float>();
    const KvGeometry& geometry = *plane.frame->geometry;
    const InputLayout layout(geometry, Layers(plane.frame->artefact), plane.layer);
    const std::size_t stride = PaddedInputs(layout.value);
    const auto inputs = plane.arena->TakeZeroed<std::int16_t>(values.tokens * stride);
    for (const DecodedPlane& earlier : plane.decoded) {
      if (earlier.layer < layout.first || earlier.layer > plane.layer) continue;
      std::size_t at = Columns(geometry, layout.first, std::size_t{earlier.layer});
      if (earlier.kind == PlaneKind::kValue) {
        at += Columns(geometry, earlier.layer, PlaneKind::kKey);
      }
      if (at < layout.value) CopyHistory(earlier, plane.tokens, inputs.subspan(at), stride);
    }
    const auto predicted =
        plane.arena->Take<float>(values.tokens * PaddedColumns(values.columns()));
    PredictRows(*predictor, inputs.data(), stride, values.tokens, predicted.data(),
                PaddedColumns(values.columns()));
    return std::span<const float>(predicted);
  }

  // Of the tokens that both have.
  static void CopyHistory(const DecodedPlane& earlier, TokenRange tokens,
                          std::span<std::int16_t> inputs, std::size_t stride) {
    const std::size_t columns = earlier.values.columns();
    const std::uint32_t begin = std::max(earlier.tokens.begin, tokens.begin);
    const std::uint32_t end = std::min(earlier.tokens.end, tokens.end);
    for (std::uint32_t token = begin; token < end; ++token) {
      const std::size_t from = std::size_t{token - earlier.tokens.begin} * columns;
      RoundHistory(earlier.values.span().subspan(from, columns),
                   &inputs[std::size_t{token - tokens.begin} * stride]);
    }
  }

  static void Subtract(std::span<const float> predicted, std::size_t stride, RealPlane rows) {
    ForEachRow(predicted, stride, rows, [](float& value, float by) { value = value - by; });
  }
  static void Add(std::span<const float> predicted, std::size_t stride, RealPlane rows) {
    ForEachRow(predicted, stride, rows, [](float& value, float by) { value = by + value; });
  }
  template <typename Change>
  static void ForEachRow(std::span<const float> predicted, std::size_t stride, RealPlane rows,
                         const Change& change) {
    if (predicted.empty()) return;
    for (std::size_t row = 0; row < rows.tokens; ++row) {
      const float* const by = predicted.data() + row * stride;
      float* const values = rows.data + row * rows.columns();
      for (std::size_t c = 0; c < rows.columns(); ++c) change(values[c], by[c]);
    }
  }

  Settings settings_;
};

}  // namespace

const StageEntry& PredictStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_transform = [](const Settings& settings) -> Result<std::unique_ptr<Transform>> {
        return std::make_unique<Predict>(settings);
      }};
  return entry;
}

}  // namespace kvserve
