#include "calibration/transform/predictor_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/try.h"
#include "calibration/transform/row_rounding.h"
#include "kernels/gemm/gemm.h"
#include "kernels/predict_rows/predict_rows.h"

namespace kvserve {
namespace {

using Matrix = Eigen::MatrixXd;
using Eigen::Index;
using Sums = std::vector<double>;
using SumsMap =
    Eigen::Map<const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

constexpr double kRidge = 0.002;    // of the mean diagonal
constexpr std::size_t kRows = 512;  // that are summed in float32

Predictor Rounded(const Matrix& weights) {  // [input, component]
  Predictor predictor;
  predictor.inputs = static_cast<std::uint32_t>(weights.rows());
  predictor.weights.reserve(static_cast<std::size_t>(weights.size()));
  for (Index c = 0; c < weights.cols(); ++c) {
    const double most = weights.col(c).cwiseAbs().maxCoeff();
    predictor.scale.push_back(static_cast<float>(most / 127 * kHistoryUnit));
    for (Index i = 0; i < weights.rows(); ++i) {
      const double value = most > 0 ? std::round(weights(i, c) / most * 127) : 0.0;
      predictor.weights.push_back(static_cast<std::int8_t>(value));
    }
  }
  return predictor;
}

Result<Predictor> RoundedWithFeedback(const Matrix& weights, const Matrix& gram, unsigned bits,
                                      Workers& workers) {
  KVSERVE_ASSIGN(auto rows, RoundRows(weights.transpose(), gram, bits, workers));
  Predictor predictor;
  predictor.inputs = static_cast<std::uint32_t>(weights.rows());
  predictor.bits = static_cast<std::uint8_t>(bits);
  predictor.weights = std::move(rows.values);
  predictor.scale = std::move(rows.scale);
  for (float& scale : predictor.scale) scale *= kHistoryUnit;
  return predictor;
}

struct Equations {
  Matrix gram;    // [input, input], with the ridge
  Matrix target;  // [input, component]
};

Equations EquationsOf(std::span<const FitRows> inputs, const PredictorProducts& products,
                      const std::vector<Sums>& targets, Index components) {
  std::size_t total = 0;
  for (const FitRows& input : inputs) total += input.columns;
  const auto size = static_cast<Index>(total);
  Matrix gram(size, size);
  Matrix target(size, components);
  Index row = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto n = static_cast<Index>(inputs[i].columns);
    Index column = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      const auto m = static_cast<Index>(inputs[j].columns);
      gram.block(row, column, n, m) = SumsMap(products[i][j].data(), n, m);
      column += m;
    }
    target.middleRows(row, n) = SumsMap(targets[i].data(), n, target.cols());
    row += n;
  }
  const double mean = gram.diagonal().mean();
  gram.diagonal().array() += mean > 0 ? kRidge * mean : 1.0;
  gram.triangularView<Eigen::StrictlyUpper>() = gram.transpose();
  return {std::move(gram), std::move(target)};
}

}  // namespace

std::vector<double> ProductSums(const FitRows& a, const FitRows& b) {
  const std::size_t rows = a.values.size() / a.columns;
  std::vector<float> turned(a.columns * kRows);
  std::vector<float> products(a.columns * b.columns);
  Sums sums(products.size());
  for (std::size_t begin = 0; begin < rows; begin += kRows) {
    const std::size_t depth = std::min(kRows, rows - begin);
    for (std::size_t row = 0; row < depth; ++row) {
      for (std::size_t i = 0; i < a.columns; ++i) {
        turned[i * depth + row] = a.values[(begin + row) * a.columns + i];
      }
    }
    MultiplyRows(std::span(turned).first(a.columns * depth), depth,
                 b.values.subspan(begin * b.columns, depth * b.columns), b.columns, products.data(),
                 b.columns);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += double{products[i]};
  }
  return sums;
}

Result<Predictor> FitPredictor(std::span<const FitRows> inputs, const FitRows& components,
                               unsigned bits, PredictorProducts& products, Workers& workers) {
  struct Item {
    const FitRows* a;
    const FitRows* b;
    Sums* to;
  };
  std::vector<Item> items;
  std::vector<Sums> targets(inputs.size());
  products.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    products[i].resize(i + 1);
    for (std::size_t j = 0; j <= i; ++j) {
      if (products[i][j].empty()) items.push_back({&inputs[i], &inputs[j], &products[i][j]});
    }
    items.push_back({&inputs[i], &components, &targets[i]});
  }
  KVSERVE_TRY(workers.Run(items.size(), [&](std::size_t i, Arena&) -> Status {
    *items[i].to = ProductSums(*items[i].a, *items[i].b);
    return {};
  }));
  const auto equations =
      EquationsOf(inputs, products, targets, static_cast<Index>(components.columns));
  const Eigen::LLT<Matrix, Eigen::Lower> solver(equations.gram);
  const Matrix weights = solver.solve(equations.target);
  if (bits == kMostMatrixBits) return Rounded(weights);
  return RoundedWithFeedback(weights, equations.gram, bits, workers);
}

}  // namespace kvserve
