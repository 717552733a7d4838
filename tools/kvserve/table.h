// Plain-text tables for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fixed_text.h"

namespace kvserve::tool {

// Rows of cells in columns as wide as their widest cell. A first row given as the heading is
// underlined; without one the table is a list of names and values.
class Table {
 public:
  Table() = default;
  explicit Table(std::vector<std::string> heading) : rows_{std::move(heading)}, heading_(true) {}

  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // To standard output.
  void Print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  bool heading_ = false;
};

[[nodiscard]] std::string BytesText(std::uint64_t bytes);  // "23.6 MB (23592960 bytes)"

}  // namespace kvserve::tool
