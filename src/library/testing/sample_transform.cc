#include "library/testing/sample_transform.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "library/sections/section_floats.h"
#include "library/testing/sample_sections.h"

namespace kvserve::testing {
namespace {

constexpr unsigned kTotal = 4096;
constexpr std::size_t kCentre = 127;  // q = 0

// 2^(quarters / 4) without a library's rounding.
double QuarterOctaves(int quarters) {
  constexpr double kWithin[] = {1.0, 1.189207115, 1.414213562, 1.681792831};
  const int octaves = (quarters + 400) / 4 - 100;
  return std::ldexp(kWithin[quarters - 4 * octaves], octaves);
}

// Falls by the same factor from each |q| to the next, as far as it is above the least frequency.
CodeTables::Frequencies Geometric(double size) {
  std::array<double, kCodeSymbols> shares{};
  double share = 1;
  for (std::size_t q = 0; q <= kCentre; ++q) {
    shares[kCentre - q] = shares[kCentre + q] = share;
    share *= size / (size + 1);
  }
  const double norm = (kTotal - 1) / std::accumulate(shares.begin(), shares.end(), 0.0);
  CodeTables::Frequencies table{};
  for (std::size_t s = 0; s < kCodeSymbols; ++s) {
    table[s] = static_cast<std::uint16_t>(norm * shares[s]);
  }
  table[kCodeEscape] = 1;
  const unsigned sum = std::accumulate(table.begin(), table.end(), 0U);
  table[kCentre] = static_cast<std::uint16_t>(table[kCentre] + kTotal - sum);
  return table;
}

std::uint16_t MeanSize(const CodeTables::Frequencies& table) {
  std::uint64_t sum = 0;
  for (std::size_t s = 0; s < kCodeSymbols; ++s) {
    sum += table[s] * (s < kCentre ? kCentre - s : s - kCentre);
  }
  return static_cast<std::uint16_t>(sum * 256 / kTotal);
}

CodeTables::ClassTable Classes(std::size_t spread) {
  CodeTables::ClassTable table{};
  for (std::size_t before = 0; before < table.size(); ++before) {
    const std::size_t centre = before == kNoClass ? 6 : before;
    unsigned left = kTotal;
    for (std::size_t c = 0; c < kCodeClasses; ++c) {
      const std::size_t distance = c < centre ? centre - c : c - centre;
      table[before][c] = static_cast<std::uint16_t>(1 + 200 / (1 + distance * spread));
      left -= table[before][c];
    }
    table[before][centre] = static_cast<std::uint16_t>(table[before][centre] + left);
  }
  return table;
}

CodeTables::Plane Contexts(std::size_t plane, std::size_t columns, int finer) {
  CodeTables::Plane contexts;
  for (std::size_t c = 0; c < columns; ++c) {
    const auto fall = static_cast<int>(16 * c / columns);
    contexts.column.push_back(static_cast<std::int8_t>(34 - finer - fall));
  }
  for (int c = 0; c < static_cast<int>(kCodeClasses); ++c) {
    contexts.klass[static_cast<std::size_t>(c)] = static_cast<std::int8_t>(2 * c - 12);
  }
  contexts.energy = {static_cast<std::int16_t>(plane % 3), 64, 32, 96};
  if (plane % 2 == 0) contexts.energy[3] = 0;
  return contexts;
}

std::size_t GroupColumns(std::size_t all, std::size_t dim, std::size_t plane) {
  constexpr std::size_t kJoint = 256;
  constexpr std::size_t kMost = 128;  // of planes beyond that
  if (all <= kJoint) return plane % 3 == 2 ? dim : all;
  std::size_t columns = std::min(dim, kMost);
  while (dim % columns != 0) --columns;
  return columns;
}

}  // namespace

Whitening SampleWhitening(std::size_t all, std::size_t columns) {
  constexpr float kUnit = 0.125F;
  const KarhunenLoeve turn = SampleKlt(all, columns);
  Whitening whitening;
  whitening.columns = static_cast<std::uint32_t>(columns);
  whitening.mean = turn.mean;
  for (std::size_t row = 0; row < all; ++row) {
    const auto values = std::span(turn.basis).subspan(row * columns, columns);
    float most = 0;
    for (const float value : values) most = std::max(most, std::fabs(value));
    whitening.scale.push_back(kUnit * most / 127);
    for (const float value : values) {
      whitening.inverse.push_back(static_cast<std::int8_t>(std::lround(value / most * 127)));
    }
  }
  return whitening;
}

Predictor SamplePredictor(std::size_t components, std::size_t inputs) {
  Predictor predictor;
  predictor.inputs = static_cast<std::uint32_t>(inputs);
  for (std::size_t c = 0; c < components; ++c) {
    predictor.scale.push_back(0.5F / (64 * 127));
    for (std::size_t i = 0; i < inputs; ++i) {
      const auto small = static_cast<int>((c * 13 + i * 7) % 5) - 2;
      predictor.weights.push_back(static_cast<std::int8_t>(i == c % inputs ? 127 : small));
    }
  }
  return predictor;
}

CodeTables SampleCodeTables(const KvGeometry& geometry, std::size_t most_columns) {
  CodeTables tables;
  for (std::size_t i = 0; i < kCodeTables; ++i) {
    tables.frequencies[i] = Geometric(QuarterOctaves(static_cast<int>(i) - kUnitCodeTable));
    tables.mean_size[i] = MeanSize(tables.frequencies[i]);
  }
  for (const float step : {1.0F, 2.0F}) {
    auto& point = tables.points.emplace_back();
    point.step = step;
    point.bits_per_value = 3 - step;
    for (std::size_t p = 0; p < 2 * geometry.layers.size(); ++p) {
      const std::size_t columns = PlaneColumns(geometry, p);
      auto& plane = point.planes.emplace_back();
      if (columns <= most_columns) plane = Contexts(p, columns, step == 1.0F ? 0 : 4);
      if (columns == 0) plane = {};
    }
  }
  tables.classes = {Classes(1), Classes(2)};
  return tables;
}

void AddTransformSample(std::size_t most_columns, CalibrationArtefact::Contents& contents) {
  const KvGeometry& geometry = contents.geometry;
  for (std::size_t p = 0; p < 2 * geometry.layers.size(); ++p) {
    const std::size_t columns = PlaneColumns(geometry, p);
    const std::size_t inputs = PredictorInputs(geometry, p, contents.predictor_layers);
    auto& whitening = contents.whitening.emplace_back();
    auto& predictor = contents.predictors.emplace_back();
    if (columns == 0 || columns > most_columns) continue;
    whitening = SampleWhitening(columns, GroupColumns(columns, PlaneDim(geometry, p), p));
    if (inputs > 0 && inputs <= 5 * most_columns) predictor = SamplePredictor(columns, inputs);
  }
  contents.code_tables = SampleCodeTables(geometry, most_columns);
}

void MakeCompact(CalibrationArtefact::Contents& contents) {
  const auto round = [](std::vector<std::int8_t>& values, std::vector<float>& scale,
                        unsigned bits) {
    for (std::int8_t& value : values) {
      value = static_cast<std::int8_t>(std::lround(value * MostOf(bits) / 127.0));
    }
    for (float& row : scale) row = row * 127 / static_cast<float>(MostOf(bits));
    return static_cast<std::uint8_t>(bits);
  };
  contents.predictor_layers = 2;
  for (std::size_t p = 0; p < contents.whitening.size(); ++p) {
    Whitening& whitening = contents.whitening[p];
    if (whitening.columns != 0) {
      whitening.bits = round(whitening.inverse, whitening.scale, p % 2 == 0 ? 6 : 7);
    }
    Predictor& predictor = contents.predictors[p];
    if (predictor.inputs != 0) {
      predictor = SamplePredictor(predictor.scale.size(),
                                  PredictorInputs(contents.geometry, p, contents.predictor_layers));
      predictor.bits = round(predictor.weights, predictor.scale, 2 + static_cast<unsigned>(p % 4));
    }
  }
  for (QueryStatistics& layer : contents.query_statistics) RoundCorrelations(layer);
}

}  // namespace kvserve::testing
