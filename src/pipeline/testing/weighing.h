// One selector on a chunk of float32 KV that a test makes by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvserve/codec.h"
#include "pipeline/stage.h"
#include "pipeline/testing/chunk.h"

namespace kvserve::testing {

// Value of channel d of head h of the token at an absolute position.
using Fill = std::function<float(std::uint32_t layer, std::uint32_t token, std::uint32_t head,
                                 std::uint32_t d)>;

class Weighing {
 public:
  using Weights = std::vector<std::vector<float>>;  // [plane][token]

  // Of float32, filled with made-up values.
  Weighing(KvGeometry shapes, TokenRange tokens, std::uint32_t total_tokens = 0)
      : geometry(std::move(shapes)),
        kv(MakeChunk(geometry, tokens, total_tokens)),
        tokens_(tokens) {}
  Weighing(const std::vector<LayerShape>& layers, TokenRange tokens, std::uint32_t total_tokens = 0)
      : Weighing(MakeGeometry(DType::kFloat32, layers), tokens, total_tokens) {}

  void FillKeys(const Fill& fill);
  void FillValues(const Fill& fill);
  // Queries of every layer, `group` query heads to a KV head.
  void FillQueries(TokenRange tokens, std::uint32_t group, const Fill& fill);
  // Query statistics of every layer: mean(layer, head, i) and covariance(layer, head, i, j).
  void SetStatistics(std::uint32_t group,
                     const std::function<float(std::uint32_t, std::uint32_t, std::uint32_t)>& mean,
                     const Fill& covariance);

  // Parameters by name ("keep", "k_beta"), the others at their defaults.
  [[nodiscard]] Result<Weights> Weigh(const StageEntry& stage,
                                      const std::map<std::string, double>& options) const;
  // The same with weights that earlier selectors left.
  [[nodiscard]] Status WeighOn(const StageEntry& stage,
                               const std::map<std::string, double>& options,
                               Weights& weights) const;

  KvGeometry geometry;
  KvBuffer kv;
  std::uint32_t prompt_tokens = 0;
  unsigned threads = 1;
  QueryView queries;
  std::shared_ptr<const CalibrationArtefact> artefact;
  SelectorMemory* memory = nullptr;       // of the request
  std::optional<std::size_t> only_layer;  // that is in the frame; all if not set

 private:
  [[nodiscard]] ConstKvView View() const;

  TokenRange tokens_;
  std::vector<std::vector<float>> query_values_;
};

// kInvalidArgument for a value out of range.
[[nodiscard]] Result<std::unique_ptr<Selector>> MakeSelector(
    const StageEntry& stage, const std::map<std::string, double>& options);

}  // namespace kvserve::testing
