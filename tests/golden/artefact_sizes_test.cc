// Bytes of calibration artefacts for the shapes of known models, compared with artefact_sizes.csv.
// KVSERVE_RECORD_GOLDEN=1 writes them anew.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "library/calibration_file.h"
#include "library/testing/sample_sections.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

struct Model {
  const char* name;
  std::uint32_t layers, kv_heads, dim, query_heads;
  double parameters;  // of 16 bits
};
constexpr Model kModels[] = {
    {"SmolLM2-135M", 30, 3, 64, 9, 134'515'008},
    {"Gemma 3 270M", 18, 1, 256, 4, 268'098'176},
    {"Llama-3.1-8B", 32, 8, 128, 32, 8'030'261'248},
    {"Qwen2.5-7B", 28, 4, 128, 28, 7'615'616'512},
};

struct Shape {
  unsigned whitening_bits, predictor_bits, query_bits;
  std::uint32_t together;  // heads that are whitened together
  std::uint32_t layers;    // before, that planes are predicted from
};
constexpr Shape kShapes[] = {
    {8, 8, 32, 8, 2}, {6, 4, 8, 8, 2}, {8, 8, 32, 8, 1}, {8, 8, 8, 8, 1},
    {6, 4, 8, 8, 1},  {6, 3, 8, 8, 1}, {4, 3, 8, 8, 1},  {6, 4, 8, 2, 1},
};
constexpr std::size_t kSteps = 3;

std::uint32_t Together(const Model& model, const Shape& shape) {
  std::uint32_t together = std::min(shape.together, model.kv_heads);
  while (model.kv_heads % together != 0) --together;
  return together;
}

// Rows of ones: sizes do not depend on values.
void AddPlane(const Shape& shape, std::size_t columns, std::size_t group, std::size_t inputs,
              Contents& contents) {
  Whitening& whitening = contents.whitening.emplace_back();
  whitening.columns = static_cast<std::uint32_t>(group);
  whitening.bits = static_cast<std::uint8_t>(shape.whitening_bits);
  whitening.mean.assign(columns, 0.0F);
  whitening.scale.assign(columns, 1.0F);
  whitening.inverse.assign(columns * group, 1);
  Predictor& predictor = contents.predictors.emplace_back();
  predictor.inputs = static_cast<std::uint32_t>(inputs);
  predictor.bits = static_cast<std::uint8_t>(shape.predictor_bits);
  if (inputs > 0) predictor.scale.assign(columns, 1.0F);
  predictor.weights.assign(columns * inputs, 1);
  contents.statistics.push_back({whitening.mean, whitening.scale});
  for (auto& point : contents.code_tables->points) {
    point.planes.push_back({std::vector<std::int8_t>(columns), {}, {}});
  }
}

// What the chain needs, of the model's first layers.
std::size_t FileBytes(const Model& model, const Shape& shape, std::uint32_t layers) {
  Contents contents;
  contents.geometry.dtype = DType::kFloat16;
  contents.geometry.layers.assign(layers, {.kv_heads = model.kv_heads,
                                           .k_dim = model.dim,
                                           .v_dim = model.dim,
                                           .rope_style = RopeStyle::kHalves,
                                           .rope_theta = 1e4F});
  contents.predictor_layers = shape.layers;
  CodeTables& tables = contents.code_tables.emplace();
  for (auto& table : tables.frequencies) table[kCodeEscape] = 4096;
  tables.points.resize(kSteps);
  for (std::size_t i = 0; i < kSteps; ++i) tables.points[i].step = static_cast<float>(i + 1);
  const std::size_t columns = std::size_t{model.kv_heads} * model.dim;
  const std::size_t group = std::size_t{Together(model, shape)} * model.dim;
  for (std::size_t p = 0; p < 2 * std::size_t{layers}; ++p) {
    AddPlane(shape, columns, group, PredictorInputs(contents.geometry, p, shape.layers), contents);
  }
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    contents.query_statistics.push_back(testing::SampleQueries(model.query_heads, model.dim));
    if (shape.query_bits == 8) RoundCorrelations(contents.query_statistics.back());
  }
  contents.attention_profile = testing::SampleAttention(contents.geometry);
  contents.frame_expectation = testing::SampleExpectation(contents.geometry);
  const auto bytes = FormatCalibration(contents);
  EXPECT_TRUE(bytes) << bytes.error().message;
  return bytes ? bytes->size() : 0;
}

std::string Table() {
  std::string table =
      "model,whitening_bits,predictor_bits,query_bits,heads_together,layers_before,bytes,share\n";
  for (const Model& model : kModels) {
    for (const Shape& shape : kShapes) {
      // Layers are alike once there are enough before them.
      const std::uint32_t few = shape.layers + 1;
      const std::size_t some = FileBytes(model, shape, few);
      const std::size_t bytes =
          some + (model.layers - few) * (FileBytes(model, shape, few + 1) - some);
      char line[160];
      std::snprintf(line, sizeof(line), "%s,%u,%u,%u,%u,%u,%zu,%.5f\n", model.name,
                    shape.whitening_bits, shape.predictor_bits, shape.query_bits,
                    Together(model, shape), shape.layers, bytes,
                    static_cast<double>(bytes) / (2 * model.parameters));
      table += line;
    }
  }
  return table;
}

TEST(ArtefactSizes, OfKnownModels) {
  const std::string table = Table();
  if (std::getenv("KVSERVE_RECORD_GOLDEN") != nullptr) {
    std::ofstream(KVSERVE_ARTEFACT_SIZES_FILE) << table;
  }
  std::ifstream file(KVSERVE_ARTEFACT_SIZES_FILE);
  EXPECT_EQ(table, std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace
}  // namespace kvserve
