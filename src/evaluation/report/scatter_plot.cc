#include "evaluation/report/scatter_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace kvserve {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 460;
constexpr double kLeft = 70;
constexpr double kRight = 150;  // for labels of points
constexpr double kTop = 40;
constexpr double kBottom = 50;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string Place(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

// Values to pixels.
class Axis {
 public:
  Axis(bool log, double low, double high, double from, double to)
      : log_(log), low_(Scale(low)), high_(Scale(high)), from_(from), to_(to) {
    if (!(high_ > low_)) high_ = low_ + 1;
  }
  [[nodiscard]] double At(double value) const {
    const double share = std::clamp((Scale(value) - low_) / (high_ - low_), 0.0, 1.0);
    return from_ + share * (to_ - from_);
  }
  [[nodiscard]] std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (log_) {
      const bool wide = high_ - low_ > 2.5;
      for (double power = std::floor(low_); power <= high_ + 1e-9; power += 1) {
        for (const double factor : {1.0, 2.0, 5.0}) {
          if (wide && factor != 1.0) continue;
          const double place = power + std::log10(factor);
          if (place >= low_ - 1e-9 && place <= high_ + 1e-9) ticks.push_back(std::pow(10.0, place));
        }
      }
      return ticks;
    }
    constexpr int kTicks = 5;
    for (int i = 0; i <= kTicks; ++i) ticks.push_back(low_ + (high_ - low_) * i / kTicks);
    return ticks;
  }

 private:
  [[nodiscard]] double Scale(double value) const {
    return log_ ? std::log10(std::max(value, 1e-12)) : value;
  }

  bool log_;
  double low_;
  double high_;
  double from_;
  double to_;
};

std::string TextAt(double x, double y, std::string_view text, const char* attributes) {
  return "<text x=\"" + Place(x) + "\" y=\"" + Place(y) + "\" " + attributes + ">" +
         EscapeMarkup(text) + "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2, const char* kind) {
  return "<line class=\"" + std::string(kind) + "\" x1=\"" + Place(x1) + "\" y1=\"" + Place(y1) +
         "\" x2=\"" + Place(x2) + "\" y2=\"" + Place(y2) + "\"/>\n";
}

std::string Grid(const ScatterPlot& plot, const Axis& x, const Axis& y) {
  std::string svg;
  for (const double tick : x.Ticks()) {
    svg += Line(x.At(tick), kTop, x.At(tick), kHeight - kBottom, "grid");
    svg += TextAt(x.At(tick), kHeight - kBottom + 18, Number(tick), "text-anchor=\"middle\"");
  }
  for (const double tick : y.Ticks()) {
    svg += Line(kLeft, y.At(tick), kWidth - kRight, y.At(tick), "grid");
    svg += TextAt(kLeft - 8, y.At(tick) + 4, Number(tick), "text-anchor=\"end\"");
  }
  const double middle = (kLeft + kWidth - kRight) / 2;
  svg += TextAt(middle, kHeight - 12, plot.x_label, "text-anchor=\"middle\"");
  svg += TextAt(kLeft - 58, kTop - 12, plot.y_label, "text-anchor=\"start\"");
  svg += TextAt(middle, 18, plot.title, "text-anchor=\"middle\" class=\"title\"");
  return svg;
}

// Names of long chains are cut; the title that appears by pointing at the point has the whole.
std::string Label(const std::string& name) {
  constexpr std::size_t kLongest = 26;
  if (name.size() <= kLongest) return name;
  std::size_t end = kLongest - 1;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;  // UTF-8
  return name.substr(0, end) + "\u2026";
}

// Labels that do not lie on each other, where there is room for that.
class Labels {
 public:
  // Baseline for `text` beside a point.
  double Place(double x, double y, const std::string& text) {
    for (const double offset : {-7.0, 14.0, -19.0, 26.0, -31.0, 38.0, -43.0, 50.0}) {
      const Box box{x, x + kLetter * static_cast<double>(text.size()), y + offset};
      if (box.baseline < kTop || std::ranges::any_of(boxes_, [&](const Box& other) {
            return box.left < other.right && other.left < box.right &&
                   std::fabs(box.baseline - other.baseline) < kLine;
          })) {
        continue;
      }
      boxes_.push_back(box);
      return box.baseline;
    }
    return y - 7.0;
  }

 private:
  static constexpr double kLetter = 6.2;  // width of one, about
  static constexpr double kLine = 12;
  struct Box {
    double left;
    double right;
    double baseline;
  };
  std::vector<Box> boxes_;
};

std::string Points(const std::vector<ScatterPoint>& points, const Axis& x, const Axis& y) {
  std::string svg;
  std::string path;
  for (const ScatterPoint& point : points) {
    if (!point.marked) continue;
    path += (path.empty() ? "" : " ") + Place(x.At(point.x)) + "," + Place(y.At(point.y));
  }
  svg += "<polyline class=\"front\" points=\"" + path + "\"/>\n";
  Labels labels;
  for (const ScatterPoint& point : points) {
    const double px = x.At(point.x);
    const double py = y.At(point.y);
    const std::string title = point.label + ": " + Number(point.x) + ", " + Number(point.y) + " (" +
                              Number(point.y_low) + " to " + Number(point.y_high) + ")";
    svg += Line(px, y.At(point.y_low), px, y.At(point.y_high), "interval");
    svg += "<circle class=\"" + std::string(point.marked ? "member" : "other") + "\" cx=\"" +
           Place(px) + "\" cy=\"" + Place(py) + "\" r=\"4\"><title>" + EscapeMarkup(title) +
           "</title></circle>\n";
    if (!point.marked) continue;
    const std::string label = Label(point.label);
    svg += TextAt(px + 7, labels.Place(px + 7, py, label), label, "class=\"label\"");
  }
  return svg;
}

}  // namespace

std::string EscapeMarkup(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string ScatterSvg(const ScatterPlot& plot) {
  std::vector<ScatterPoint> points;
  for (ScatterPoint point : plot.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    if (plot.log_x && point.x <= 0) continue;
    if (plot.log_y) {
      for (double* y : {&point.y, &point.y_low, &point.y_high}) *y = std::max(*y, plot.y_floor);
    }
    points.push_back(std::move(point));
  }
  std::ranges::stable_sort(points, {}, &ScatterPoint::x);
  double low_x = 1;
  double high_x = 2;
  double low_y = plot.log_y ? plot.y_floor : 0;
  double high_y = plot.log_y ? plot.y_floor * 10 : 1;
  for (const ScatterPoint& point : points) {
    low_x = std::min(low_x, point.x);
    high_x = std::max(high_x, point.x * 1.1);
    high_y = std::max(high_y, std::max(point.y, point.y_high));
    low_y = std::min(low_y, point.y_low);
  }
  const Axis x(plot.log_x, low_x, high_x, kLeft, kWidth - kRight);
  const Axis y(plot.log_y, low_y, high_y, kHeight - kBottom, kTop);
  return "<svg viewBox=\"0 0 " + Number(kWidth) + " " + Number(kHeight) + "\" role=\"img\">\n" +
         Grid(plot, x, y) + Points(points, x, y) + "</svg>\n";
}

}  // namespace kvserve
