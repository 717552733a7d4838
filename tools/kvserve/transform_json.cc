#include "transform_json.h"

#include <algorithm>
#include <utility>

namespace kvserve::tool {

using Json = nlohmann::json;

std::size_t PredictedPlanes(const CalibrationArtefact::Contents& contents) {
  return static_cast<std::size_t>(std::ranges::count_if(
      contents.predictors, [](const auto& plane) { return plane.inputs != 0; }));
}

Json TransformJson(const CalibrationArtefact::Contents& contents) {
  if (!contents.code_tables) return {};
  Json points = Json::array();
  for (const auto& point : contents.code_tables->points) {
    points.push_back({{"step", point.step}, {"bits_per_value", point.bits_per_value}});
  }
  const auto whitened = std::ranges::count_if(contents.whitening,
                                              [](const auto& plane) { return plane.columns != 0; });
  return {{"whitened_planes", whitened},
          {"predicted_planes", PredictedPlanes(contents)},
          {"points", std::move(points)}};
}

}  // namespace kvserve::tool
