#include "calibration/transform/transform_training.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/try.h"
#include "calibration/row_covariance.h"
#include "calibration/transform/closed_loop.h"
#include "calibration/transform/context_fit.h"
#include "calibration/transform/frame_levels.h"
#include "calibration/transform/predictor_fit.h"
#include "calibration/transform/whitening_fit.h"
#include "kernels/gemm/gemm.h"
#include "kernels/predict_rows/predict_rows.h"
#include "library/whitening_matrices.h"
#include "pipeline/plane_order.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

constexpr std::uint32_t kFirstTokens = 4;  // of a text, which are like no others
constexpr double kNominalDivergence = 0.01;
constexpr std::size_t kTileRows = 256;
constexpr std::size_t kMostWholeValues = 64'000'000;  // of all matrices in 8 bits

std::size_t Columns(const KvGeometry& geometry, std::size_t plane) {
  const LayerGeometry& layer = geometry.layers[plane / 2];
  return std::size_t{layer.kv_heads} * (plane % 2 == 0 ? layer.k_dim : layer.v_dim);
}

// Of the heads that are whitened together.
std::size_t GroupColumns(const KvGeometry& geometry, std::size_t plane, std::size_t most) {
  const std::size_t heads = geometry.layers[plane / 2].kv_heads;
  const std::size_t dim = Columns(geometry, plane) / heads;
  std::size_t together = heads;
  while (together > 1 && (together * dim > most || heads % together != 0)) --together;
  return together * dim;
}

class Training {
 public:
  Training(const CalibrationTexts& texts, const Sensitivity& sensitivity,
           std::span<const std::vector<std::uint8_t>> classes, const TransformOptions& options,
           Workers& workers)
      : texts_(texts),
        geometry_(texts.geometry()),
        sensitivity_(sensitivity),
        classes_(classes),
        options_(options),
        workers_(workers),
        sizes_(MatrixSizesOf(geometry_, options)),
        unit_(SensitivityUnit(sensitivity, geometry_)),
        counted_(texts.rows(), 1),
        raw_(texts.rows(), 0),
        frames_(FramesOf(texts, kFirstTokens, options.frame_tokens)),
        histories_(options.steps.size(), PlaneHistory(sizes_.predictor_layers)),
        counts_(options.steps.size()) {
    for (const auto& text : texts.texts()) {
      const std::uint32_t first = std::min(kFirstTokens, text.tokens);
      std::fill_n(counted_.begin() + static_cast<std::ptrdiff_t>(text.first_row), first, 0);
      if (text.tokens > 0) raw_[text.first_row] = 1;
    }
  }

  Status Run(Contents& contents) {
    const std::size_t planes = 2 * geometry_.layers.size();
    contents.whitening.assign(planes, {});
    contents.predictors.assign(planes, {});
    contents.predictor_layers = sizes_.predictor_layers;
    contents.frame_expectation = {options_.frame_tokens, {}};
    contents.frame_expectation.planes.assign(planes, {});
    CodeTables& tables = contents.code_tables.emplace();
    for (const double step : options_.steps) {
      auto& point = tables.points.emplace_back();
      point.step = static_cast<float>(step);
      point.planes.resize(planes);
    }
    for (std::size_t p = 0; p < planes; ++p) {
      if (p % 2 == 0) {
        for (auto& history : histories_) history.NextLayer();
        NextLayerProducts(p);
      }
      if (Columns(geometry_, p) > 0) KVSERVE_TRY(TrainPlane(p, contents, tables));
      if (options_.progress) options_.progress(p + 1, planes);
    }
    Finish(tables);
    return {};
  }

 private:
  Status TrainPlane(std::size_t p, Contents& contents, CodeTables& tables) {
    KVSERVE_TRY(texts_.Load(p, values_));
    KVSERVE_TRY(Whiten(p, contents.whitening[p]));
    const std::size_t middle = options_.steps.size() / 2;
    if (PredictorInputs(geometry_, p, sizes_.predictor_layers) > 0) {
      KVSERVE_ASSIGN(contents.predictors[p], Predict(p, middle));
    }
    for (std::size_t i = 0; i < options_.steps.size(); ++i) {
      PlaneLoop loop = {.components = values_,
                        .columns = Columns(geometry_, p),
                        .inverse_step = static_cast<float>(1 / options_.steps[i]),
                        .predictor = contents.predictors[p],
                        .classes = classes_[p],
                        .raw = raw_};
      KVSERVE_TRY(loop.Run(histories_[i].Inputs(p), workers_, coded_));
      if (i == middle) {
        contents.frame_expectation.planes[p] =
            FrameLevels(frames_, values_, coded_.residuals, options_.steps[i], loop.columns,
                        loop.predictor.inputs > 0);
      }
      auto& history = histories_[i];
      std::vector<std::int32_t> energies;
      tables.points[i].planes[p] = FitContexts({.residuals = coded_.residuals,
                                                .symbols = coded_.symbols,
                                                .classes = classes_[p],
                                                .counted = counted_,
                                                .energies = history.Energies(p)},
                                               counts_[i], energies);
      history.Add(p, coded_.history, std::move(energies));
    }
    const auto kind = p % 2;
    const auto before =
        p >= 2 ? std::span<const std::uint8_t>(classes_[p - 2]) : std::span<const std::uint8_t>();
    class_counts_[kind].Add(before, classes_[p], counted_);
    return {};
  }

  // Replaces values by components, in units.
  Status Whiten(std::size_t p, Whitening& whitening) {
    const std::size_t columns = Columns(geometry_, p);
    const auto& metric = sensitivity_.planes[p];
    if (metric.size() != columns * columns) {
      return MakeError(ErrorCode::kMismatch,
                       "there is no sensitivity of " +
                           PlaneName(static_cast<std::uint32_t>(p / 2),
                                     p % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue));
    }
    const std::size_t group = GroupColumns(geometry_, p, options_.joint_columns);
    RowCovariance covariance(columns / group, group);
    for (const auto& text : texts_.texts()) {
      const std::size_t first = std::min(kFirstTokens, text.tokens);
      covariance.Add(std::span<const float>(values_).subspan((text.first_row + first) * columns,
                                                             (text.tokens - first) * columns));
    }
    KVSERVE_ASSIGN(whitening, FitWhitening(metric, covariance.Mean(), covariance.Covariance(group),
                                           {group, sizes_.whitening_bits}, unit_, workers_));
    const auto forward = InvertedWhitening(whitening);
    if (!forward) return MakeError(ErrorCode::kInternal, "a whitening matrix is singular");
    return ApplyWhitening(whitening, *forward);
  }

  Status ApplyWhitening(const Whitening& whitening, std::span<const float> forward) {
    const std::size_t columns = whitening.mean.size();
    const std::size_t n = whitening.columns;
    const std::size_t tiles = (texts_.rows() + kTileRows - 1) / kTileRows;
    return workers_.Run(tiles, [&](std::size_t tile, Arena& scratch) -> Status {
      const std::size_t first = tile * kTileRows;
      const std::size_t rows = std::min(kTileRows, texts_.rows() - first);
      const auto centred = scratch.Take<float>(rows * n);
      for (std::size_t group = 0; group < columns / n; ++group) {
        float* const block = values_.data() + first * columns + group * n;
        for (std::size_t row = 0; row < rows; ++row) {
          for (std::size_t c = 0; c < n; ++c) {
            centred[row * n + c] = block[row * columns + c] - whitening.mean[group * n + c];
          }
        }
        MultiplyRows(centred, n, forward.subspan(group * n * n, n * n), n, block, columns);
      }
      return {};
    });
  }

  Result<Predictor> Predict(std::size_t p, std::size_t point) {
    const auto history = histories_[point].Inputs(p);
    std::vector<std::vector<float>> floats;
    std::vector<FitRows> inputs;
    for (const auto& plane : history) {
      auto& rows = floats.emplace_back(plane.values.size());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i] = counted_[i / plane.columns] == 0
                      ? 0.0F
                      : static_cast<float>(plane.values[i]) * kHistoryUnit;
      }
      inputs.push_back({rows, plane.columns});
    }
    std::vector<float> components(values_.size());
    const auto inverse_step = static_cast<float>(1 / options_.steps[point]);
    std::ranges::transform(values_, components.begin(),
                           [&](float value) { return value * inverse_step; });
    return FitPredictor(inputs, {components, Columns(geometry_, p)}, sizes_.predictor_bits,
                        products_, workers_);
  }

  // The inputs of the last layer's V without those of its oldest layer come first in the next
  // layer: their products stay.
  void NextLayerProducts(std::size_t p) {
    if (p < 2) return;
    const std::size_t layer = p / 2 - 1;  // that is left
    if (Columns(geometry_, p - 1) == 0) return products_.clear();
    if (layer < sizes_.predictor_layers) return;
    const std::size_t oldest = layer - sizes_.predictor_layers;
    const std::size_t gone = std::size_t{Columns(geometry_, 2 * oldest) > 0} +
                             std::size_t{Columns(geometry_, 2 * oldest + 1) > 0};
    products_.erase(products_.begin(), products_.begin() + static_cast<std::ptrdiff_t>(gone));
    for (auto& row : products_) {
      row.erase(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(gone));
    }
  }

  void Finish(CodeTables& tables) {
    TableCounts all;
    for (const TableCounts& counts : counts_) all.Add(counts);
    tables.frequencies = FitTables(all);
    tables.mean_size = TableMeanSizes();
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const double symbols = std::max<double>(1, static_cast<double>(counts_[i].total()));
      tables.points[i].bits_per_value =
          static_cast<float>(CodeBits(counts_[i], tables.frequencies) / symbols);
    }
    tables.classes = {class_counts_[0].Table(), class_counts_[1].Table()};
  }

  const CalibrationTexts& texts_;
  const KvGeometry& geometry_;
  const Sensitivity& sensitivity_;
  std::span<const std::vector<std::uint8_t>> classes_;
  const TransformOptions& options_;
  Workers& workers_;
  MatrixSizes sizes_;
  double unit_;
  std::vector<std::uint8_t> counted_;  // [row]
  std::vector<std::uint8_t> raw_;      // [row] first tokens of texts
  std::vector<FrameRows> frames_;
  std::vector<PlaneHistory> histories_;  // [point]
  std::vector<TableCounts> counts_;      // [point]
  std::array<ClassCounts, 2> class_counts_;
  PredictorProducts products_;  // of the middle point's inputs
  std::vector<float> values_;   // of the plane in hand
  CodedPlane coded_;
};

Status CheckOptions(const CalibrationTexts& texts, const Sensitivity& sensitivity,
                    const TransformOptions& options) {
  const bool ascending = std::ranges::is_sorted(options.steps, std::ranges::less_equal());
  if (options.steps.empty() || !ascending || !(options.steps.front() > 0) ||
      !std::isfinite(options.steps.back())) {
    return MakeError(ErrorCode::kInvalidArgument, "steps are positive and ascend");
  }
  if (sensitivity.planes.size() != 2 * texts.geometry().layers.size()) {
    return MakeError(ErrorCode::kMismatch, "the sensitivity is of another number of layers");
  }
  const MatrixSizes chosen = MatrixSizesOf(texts.geometry(), options);
  for (const unsigned bits : {chosen.whitening_bits, chosen.predictor_bits}) {
    if (bits >= kLeastMatrixBits && bits <= kMostMatrixBits) continue;
    return MakeError(ErrorCode::kInvalidArgument, "bits of a matrix are 2..8");
  }
  if (chosen.query_bits != 8 && chosen.query_bits != 32) {
    return MakeError(ErrorCode::kInvalidArgument, "bits of a correlation of queries are 8 or 32");
  }
  if (chosen.predictor_layers > kMostPredictorLayers) {
    return MakeError(ErrorCode::kInvalidArgument, "planes are predicted from 1..8 layers");
  }
  const bool any = std::ranges::any_of(
      texts.texts(), [](const auto& text) { return text.tokens > 2 * kFirstTokens; });
  if (!any) return MakeError(ErrorCode::kBadInput, "no text has tokens enough for a transform");
  return {};
}

}  // namespace

MatrixSizes MatrixSizesOf(const KvGeometry& geometry, const TransformOptions& options) {
  std::size_t values = 0;
  for (std::size_t p = 0; p < 2 * geometry.layers.size(); ++p) {
    const std::size_t columns = Columns(geometry, p);
    if (columns == 0) continue;
    values += columns * GroupColumns(geometry, p, options.joint_columns);
    values += columns * PredictorInputs(geometry, p, 1);
  }
  MatrixSizes sizes;
  if (values > kMostWholeValues) sizes = {6, 4, 1, 8};
  if (options.whitening_bits != 0) sizes.whitening_bits = options.whitening_bits;
  if (options.predictor_bits != 0) sizes.predictor_bits = options.predictor_bits;
  if (options.predictor_layers != 0) sizes.predictor_layers = options.predictor_layers;
  if (options.query_bits != 0) sizes.query_bits = options.query_bits;
  return sizes;
}

double SensitivityUnit(const Sensitivity& sensitivity, const KvGeometry& geometry) {
  double columns = 0;
  for (std::size_t p = 0; p < 2 * geometry.layers.size(); ++p) columns += Columns(geometry, p);
  const double tokens = std::max<std::uint32_t>(sensitivity.context_tokens, 1);
  return std::sqrt(2 * 12 * kNominalDivergence / (tokens * columns));
}

Status TrainTransform(const CalibrationTexts& texts, const Sensitivity& sensitivity,
                      std::span<const std::vector<std::uint8_t>> classes,
                      const TransformOptions& options, Workers& workers, Contents& contents) {
  KVSERVE_TRY(CheckOptions(texts, sensitivity, options));
  return Training(texts, sensitivity, classes, options, workers).Run(contents);
}

}  // namespace kvserve
