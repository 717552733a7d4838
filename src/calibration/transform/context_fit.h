// How the tables of `contexts` are found, and the tables, from residuals of the calibration texts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "library/transform_contents.h"

namespace kvserve {

// One plane at one step size. Rows that are not `counted` (first tokens) count nothing.
struct ContextRows {
  std::span<const float> residuals;       // [row, column] in steps, before classes
  std::span<const std::int8_t> symbols;   // [row, column] q, within +-127
  std::span<const std::uint8_t> classes;  // [row]
  std::span<const std::uint8_t> counted;  // [row] 0 or 1
  // [row] of K and V of the layer before, and of K of the same layer; empty: not there.
  std::array<std::span<const std::int32_t>, 3> energies;
};

// Counts of symbols by table.
class TableCounts {
 public:
  TableCounts() : counts_(kCodeTables * kCodeSymbols) {}
  [[nodiscard]] std::uint64_t* table(std::size_t i) { return counts_.data() + i * kCodeSymbols; }
  [[nodiscard]] const std::uint64_t* table(std::size_t i) const {
    return counts_.data() + i * kCodeSymbols;
  }
  void Add(const TableCounts& other);
  [[nodiscard]] std::uint64_t total() const;

 private:
  std::vector<std::uint64_t> counts_;  // [table][symbol]
};

// Mean |q| that each table is for, in 1/256: of a Laplace distribution of 2^((table - 24) / 4)
// steps, rounded to steps.
[[nodiscard]] std::array<std::uint16_t, kCodeTables> TableMeanSizes();

// Column indices by the mean residual of a column, class indices by the mean ratio of a class's
// residuals to those (and by its finer step), weights of the energies by regression. Adds the
// symbols to the tables that they are then coded with; `energies` gets the plane's own, [row].
[[nodiscard]] CodeTables::Plane FitContexts(const ContextRows& rows, TableCounts& counts,
                                            std::vector<std::int32_t>& energies);

// Symmetric tables: a symbol is in a table when symbols at least as large are more than 1 / 5000 of
// it. Tables without symbols are those of Laplace distributions.
[[nodiscard]] std::array<CodeTables::Frequencies, kCodeTables> FitTables(const TableCounts& counts);

// Code length of these symbols, escapes with the 8 bits that follow them.
[[nodiscard]] double CodeBits(const TableCounts& counts,
                              const std::array<CodeTables::Frequencies, kCodeTables>& tables);

// Transitions of the classes of a token from one layer to the next, one kind of plane.
class ClassCounts {
 public:
  // `before` is empty for the first layer.
  void Add(std::span<const std::uint8_t> before, std::span<const std::uint8_t> classes,
           std::span<const std::uint8_t> counted);
  [[nodiscard]] CodeTables::ClassTable Table() const;

 private:
  std::array<std::array<double, kCodeClasses>, kCodeClasses + 1> counts_{};
};

}  // namespace kvserve
