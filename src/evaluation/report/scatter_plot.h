// A scatter plot as SVG text.
#pragma once

#include <string>
#include <vector>

namespace kvserve {

struct ScatterPoint {
  std::string label;  // shown beside marked points, and by pointing at the others
  double x = 0.0;
  double y = 0.0;
  double y_low = 0.0;  // of its interval
  double y_high = 0.0;
  bool marked = false;  // filled, and joined by a line in the order of x
};

struct ScatterPlot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;
  bool log_y = false;
  // On a logarithmic axis values below this, 0 included, are drawn at the bottom.
  double y_floor = 1e-5;
  std::vector<ScatterPoint> points;
};

// One <svg> element, 760 x 460, that names no other file. Text is escaped. Points that are not
// finite are left out.
[[nodiscard]] std::string ScatterSvg(const ScatterPlot& plot);

// The text with &, <, > and both quotation marks as entities.
[[nodiscard]] std::string EscapeMarkup(std::string_view text);

}  // namespace kvserve
