// Mean and covariance of rows, in groups of adjacent columns that are correlated with each other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace kvserve {

// Rows come in blocks; each is centred on its own mean, multiplied in float32, and merged in
// float64 (Chan, Golub and LeVeque 1979), so a mean far beyond the deviation (key biases) costs no
// digits. One thread at a time.
class RowCovariance {
 public:
  // groups * columns values per row; 8 * groups * columns^2 bytes.
  RowCovariance(std::size_t groups, std::size_t columns);
  RowCovariance(RowCovariance&&) noexcept;
  RowCovariance& operator=(RowCovariance&&) noexcept;
  ~RowCovariance();

  // `rows` [row, group, column], finite.
  void Add(std::span<const float> rows);
  [[nodiscard]] std::uint64_t count() const;
  [[nodiscard]] std::size_t groups() const;
  [[nodiscard]] std::size_t columns() const;
  // [group, column]; 0 without rows.
  [[nodiscard]] std::vector<float> Mean() const;
  // [group, column, column], symmetric, of `part` adjacent columns each: their blocks on the
  // diagonal (part divides columns; the groups are then groups * columns / part).
  [[nodiscard]] std::vector<float> Covariance(std::size_t part) const;

  // Eigenvectors of those blocks by falling eigenvalue, each with its largest entry positive.
  struct Axes {
    std::vector<float> basis;     // [group][component][column]
    std::vector<float> variance;  // [group][component]
  };
  [[nodiscard]] Axes PrincipalAxes(std::size_t part) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvserve
