// The KV of texts, computed by a model.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "calibration/calibration_source.h"
#include "engine/engine.h"

namespace kvserve {

// Every pass prefills every prompt again: KV of many texts would not fit into memory.
class EngineSource final : public CalibrationSource {
 public:
  // `engine` outlives this; its sequences hold the longest prompt. Prompts are evaluated in pieces
  // of `prefill_tokens`, at most what the engine takes.
  EngineSource(Engine& engine, std::vector<std::vector<Token>> prompts,
               std::uint32_t prefill_tokens);

  [[nodiscard]] const KvGeometry& geometry() const override { return engine_.info().geometry; }
  [[nodiscard]] const Fingerprint& model() const override { return engine_.info().fingerprint; }
  [[nodiscard]] std::uint64_t tokens() const override;
  // A window layer holds in each chunk what it would at the end of that chunk.
  [[nodiscard]] Status ForEachChunk(
      std::uint32_t chunk_tokens, const std::function<Status(const ConstKvView&)>& visit) override;
  [[nodiscard]] Status TapQueries(QueryTap tap) override {
    return engine_.TapQueries(std::move(tap));
  }

 private:
  [[nodiscard]] Status VisitPrompt(std::span<const Token> prompt, std::uint32_t chunk_tokens,
                                   const std::function<Status(const ConstKvView&)>& visit);

  Engine& engine_;
  std::vector<std::vector<Token>> prompts_;
  std::uint32_t prefill_tokens_;
  KvBuffer chunk_;
};

}  // namespace kvserve
