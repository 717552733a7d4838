#include "calibration/transform/context_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "kernels/rans/token_energy.h"

namespace kvserve {
namespace {

constexpr double kPrior = 20;  // tokens of an ordinary class, beside those of each class
constexpr double kEnergyRidge = 1e-2;
constexpr int kLeastIndex = -40;  // column and class indices stay within bytes

double TableScale(std::size_t table) {
  return std::exp2((static_cast<double>(table) - kUnitCodeTable) / 4);
}

std::int8_t Quarters(double log2) {
  return static_cast<std::int8_t>(std::clamp<long>(std::lround(4 * log2), kLeastIndex, 100));
}

std::size_t TableAt(int index) {
  return static_cast<std::size_t>(std::clamp(index, 0, static_cast<int>(kCodeTables) - 1));
}

// [column] mean residual over the counted rows.
std::vector<double> ColumnMeans(const ContextRows& rows, std::size_t columns) {
  std::vector<double> means(columns);
  double counted = 0;
  for (std::size_t row = 0; row < rows.classes.size(); ++row) {
    if (rows.counted[row] == 0) continue;
    counted += 1;
    const float* const residuals = rows.residuals.data() + row * columns;
    for (std::size_t c = 0; c < columns; ++c) means[c] += std::fabs(residuals[c]);
  }
  for (double& mean : means) mean = std::max(mean / std::max(counted, 1.0), 1e-4);
  return means;
}

// log2 of the residuals of a class against those of all.
std::array<double, kCodeClasses> ClassLevels(const ContextRows& rows,
                                             std::span<const double> means) {
  std::array<double, kCodeClasses> sums{};
  std::array<double, kCodeClasses> counts{};
  std::vector<float> inverse;
  for (const double mean : means) {
    inverse.push_back(static_cast<float>(1 / (mean * static_cast<double>(means.size()))));
  }
  for (std::size_t row = 0; row < rows.classes.size(); ++row) {
    if (rows.counted[row] == 0) continue;
    const float* const residuals = rows.residuals.data() + row * means.size();
    double ratio = 0;
    for (std::size_t c = 0; c < means.size(); ++c) ratio += std::fabs(residuals[c]) * inverse[c];
    sums[rows.classes[row]] += ratio;
    counts[rows.classes[row]] += 1;
  }
  std::array<double, kCodeClasses> levels{};
  for (std::size_t c = 0; c < kCodeClasses; ++c) {
    levels[c] = std::log2((sums[c] + kPrior) / (counts[c] + kPrior));
  }
  return levels;
}

std::vector<std::int32_t> Energies(const ContextRows& rows, const CodeTables::Plane& plane) {
  static const auto mean_sizes = TableMeanSizes();
  std::array<std::int32_t, kCodeClasses> levels{};
  for (std::size_t k = 0; k < kCodeClasses; ++k) {
    std::uint64_t sum = 0;
    for (const std::int8_t column : plane.column)
      sum += mean_sizes[TableAt(column + plane.klass[k])];
    levels[k] = ExpectedLevel(sum);
  }
  const std::size_t columns = plane.column.size();
  std::vector<std::int32_t> energies(rows.classes.size());
  for (std::size_t row = 0; row < energies.size(); ++row) {
    std::uint64_t sum = 0;
    const std::int8_t* const symbols = rows.symbols.data() + row * columns;
    for (std::size_t c = 0; c < columns; ++c) {
      sum += static_cast<std::uint64_t>(std::abs(int{symbols[c]}));
    }
    energies[row] = TokenEnergy(sum, levels[rows.classes[row]]);
  }
  return energies;
}

std::array<std::int16_t, 4> EnergyWeights(const ContextRows& rows,
                                          std::span<const std::int32_t> own) {
  Eigen::Matrix4d gram = Eigen::Matrix4d::Identity() * kEnergyRidge;
  Eigen::Vector4d target = Eigen::Vector4d::Zero();
  const auto octaves = [](std::int32_t energy) { return energy / 256.0; };
  for (std::size_t row = 0; row < own.size(); ++row) {
    if (rows.counted[row] == 0) continue;
    Eigen::Vector4d x(1, 0, 0, 0);
    for (int i = 0; i < 3; ++i) {
      const auto& earlier = rows.energies[static_cast<std::size_t>(i)];
      if (!earlier.empty()) x(i + 1) = octaves(earlier[row]);
    }
    gram += x * x.transpose();
    target += x * octaves(own[row]);
  }
  const Eigen::Vector4d weights = gram.ldlt().solve(target);
  std::array<std::int16_t, 4> rounded{};
  for (int i = 0; i < 4; ++i) {
    const double value = std::clamp(std::round(weights(i) * 256), -32767.0, 32767.0);
    rounded[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(value);
  }
  return rounded;
}

void Count(const ContextRows& rows, const CodeTables::Plane& plane, TableCounts& counts) {
  const std::size_t columns = plane.column.size();
  for (std::size_t row = 0; row < rows.classes.size(); ++row) {
    if (rows.counted[row] == 0) continue;
    std::array<std::int32_t, 3> energies{};
    for (std::size_t i = 0; i < 3; ++i) {
      if (!rows.energies[i].empty()) energies[i] = rows.energies[i][row];
    }
    const int shift = plane.klass[rows.classes[row]] + EnergyShift(plane.energy, energies);
    const std::int8_t* const symbols = rows.symbols.data() + row * columns;
    for (std::size_t c = 0; c < columns; ++c) {
      ++counts.table(TableAt(plane.column[c] + shift))[symbols[c] + 127];
    }
  }
}

}  // namespace

void TableCounts::Add(const TableCounts& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

std::uint64_t TableCounts::total() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts_) sum += count;
  return sum;
}

std::array<std::uint16_t, kCodeTables> TableMeanSizes() {
  std::array<std::uint16_t, kCodeTables> sizes{};
  for (std::size_t i = 0; i < kCodeTables; ++i) {
    const double mean = 1 / (2 * std::sinh(std::min(0.5 / TableScale(i), 40.0)));
    sizes[i] = static_cast<std::uint16_t>(std::min(std::round(256 * mean), 127.0 * 256));
  }
  return sizes;
}

CodeTables::Plane FitContexts(const ContextRows& rows, TableCounts& counts,
                              std::vector<std::int32_t>& energies) {
  CodeTables::Plane plane;
  const std::vector<double> means = ColumnMeans(rows, rows.residuals.size() / rows.classes.size());
  for (const double mean : means) {
    plane.column.push_back(static_cast<std::int8_t>(Quarters(std::log2(mean)) + kUnitCodeTable));
  }
  const auto levels = ClassLevels(rows, means);
  for (std::size_t k = 0; k < kCodeClasses; ++k) {
    plane.klass[k] = Quarters(levels[k] + (static_cast<double>(k) - 6) / 2);
  }
  energies = Energies(rows, plane);
  plane.energy = EnergyWeights(rows, energies);
  Count(rows, plane, counts);
  return plane;
}

void ClassCounts::Add(std::span<const std::uint8_t> before, std::span<const std::uint8_t> classes,
                      std::span<const std::uint8_t> counted) {
  for (std::size_t row = 0; row < classes.size(); ++row) {
    if (counted[row] == 0) continue;
    counts_[before.empty() ? kNoClass : before[row]][classes[row]] += 1;
  }
}

CodeTables::ClassTable ClassCounts::Table() const {
  constexpr double kOrdinary = 3;  // tokens as of all, beside those that were counted
  std::array<double, kCodeClasses> all{};
  double total = 0;
  for (const auto& row : counts_) {
    for (std::size_t k = 0; k < kCodeClasses; ++k) {
      all[k] += row[k];
      total += row[k];
    }
  }
  CodeTables::ClassTable table{};
  for (std::size_t before = 0; before < table.size(); ++before) {
    double sum = 0;
    for (const double count : counts_[before]) sum += count;
    std::size_t most = 0;
    int left = 4096;
    for (std::size_t k = 0; k < kCodeClasses; ++k) {
      const double share =
          (counts_[before][k] + kOrdinary * (all[k] + 0.1) / (total + 1.3)) / (sum + kOrdinary);
      table[before][k] = static_cast<std::uint16_t>(std::max(1.0, std::round(share * 4080)));
      left -= table[before][k];
      if (table[before][k] > table[before][most]) most = k;
    }
    table[before][most] = static_cast<std::uint16_t>(table[before][most] + left);
  }
  return table;
}

}  // namespace kvserve
