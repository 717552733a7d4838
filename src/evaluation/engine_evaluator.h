// Quality of profiles measured with a model: every prompt's KV goes through each profile and back.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "evaluation/capture_store.h"
#include "evaluation/evaluation_prompt.h"
#include "evaluation/evaluator.h"
#include "evaluation/prepared_prompt.h"
#include "evaluation/profile_score.h"
#include "evaluation/record.h"
#include "kvserve/codec.h"

namespace kvserve {

struct EvaluatorOptions {
  std::vector<std::uint32_t> context_tokens = {1536};  // of "lm" texts, each length by itself
  std::uint32_t scored_tokens = 256;                   // of them after the context
  std::uint32_t generate_tokens = 0;  // greedy ones after the context of "lm" texts
  std::uint32_t frame_tokens = 256;   // per frame; kMaxTokens: all in one
  std::uint32_t chunk_tokens = 256;   // per Prefill: 128 up to what the engine takes
  bool unknown_length = false;        // frames are encoded before the prompt's length is known
  CodecOptions codec;
  // Captured KV and references are kept for the next call of Evaluate up to this.
  std::uint64_t keep_bytes = std::uint64_t{1} << 30;
};

// Whether encoding by the profile takes the prompt's queries: the engine must then be opened to
// show them.
[[nodiscard]] Result<bool> NeedsQueries(const Profile& profile, DType dtype);

class EngineEvaluator final : public Evaluator {
 public:
  // `engine` and `store`, which may be null, outlive this. `progress` gets the steps done and their
  // number.
  EngineEvaluator(Engine& engine, EvaluatorOptions options,
                  std::function<void(std::size_t, std::size_t)> progress = {},
                  CaptureStore* store = nullptr);

  // Adds what can be scored, at most `limit` records of each set, context length by context length
  // (0: all); the rest is skipped and counted.
  [[nodiscard]] Status AddRecords(std::span<const Record> records, std::size_t limit);
  void AddPrompts(std::vector<EvaluationPrompt> prompts);
  [[nodiscard]] std::size_t prompts() const { return prompts_.size(); }
  // Of model and prompts: scores of other runs compare only if it is the same.
  [[nodiscard]] std::string digest() const;
  [[nodiscard]] std::size_t skipped() const { return skipped_; }
  [[nodiscard]] std::size_t captured() const { return captured_; }  // prompts that were prefilled

  // Each prompt is prefilled once for all profiles; again when a later call has the first profile
  // that needs the prompt's queries (the engine must show them, or kUnsupported). O(prompts *
  // profiles) evaluations of the scored tokens. An error names the profile. kBadInput when there
  // are no prompts.
  [[nodiscard]] Result<std::vector<ProfileScore>> Evaluate(
      std::span<const Profile> profiles) override;

 private:
  struct Coder {
    FrameEncoder encoder;
    FrameDecoder decoder;
    bool needs_queries = false;
  };
  [[nodiscard]] Result<std::vector<Coder>> MakeCoders(std::span<const Profile> profiles) const;
  // Fills what the slot lacks.
  [[nodiscard]] Status Prepare(const EvaluationPrompt& prompt, bool queries,
                               std::optional<PreparedPrompt>& slot);
  [[nodiscard]] Result<PreparedPrompt> PrepareKv(const EvaluationPrompt& prompt, bool queries);
  [[nodiscard]] Result<PromptScore> ScoreProfile(const EvaluationPrompt& prompt,
                                                 const PreparedPrompt& prepared, Coder& coder);
  // Puts the prompt's KV through the coder into the sequence.
  [[nodiscard]] Status Transfer(const EvaluationPrompt& prompt, const PreparedPrompt& prepared,
                                Coder& coder, SequenceId sequence, PromptScore& score);

  Engine& engine_;
  EvaluatorOptions options_;
  std::function<void(std::size_t, std::size_t)> progress_;
  CaptureStore* store_;
  std::vector<EvaluationPrompt> prompts_;
  std::vector<std::optional<PreparedPrompt>> kept_;  // [prompt]
  std::uint64_t kept_bytes_ = 0;
  std::size_t skipped_ = 0;
  std::size_t captured_ = 0;
};

}  // namespace kvserve
