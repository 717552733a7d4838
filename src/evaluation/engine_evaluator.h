// Quality of profiles measured with a model: every prompt's KV goes through each profile and back.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "evaluation/evaluator.h"
#include "evaluation/lm_prompt.h"
#include "evaluation/profile_score.h"
#include "evaluation/record.h"
#include "kvserve/codec.h"
#include "kvserve/view.h"

namespace kvserve {

class EngineEvaluator final : public Evaluator {
 public:
  // `engine` outlives this. Its sequences hold context_tokens + scored_tokens. `progress` gets the
  // steps done and their number. Frames are coded as `codec` says.
  EngineEvaluator(Engine& engine, LmOptions options,
                  std::function<void(std::size_t, std::size_t)> progress = {},
                  CodecOptions codec = {});

  // Takes the first context + scored tokens of each text, at most `limit` of them (0: all); shorter
  // texts are skipped. kBadInput when none is long enough.
  [[nodiscard]] Status AddTexts(std::span<const Record> records, std::size_t limit);
  [[nodiscard]] std::size_t prompts() const { return prompts_.size(); }
  [[nodiscard]] std::size_t skipped() const { return skipped_; }

  // Each prompt is prefilled once for all profiles. O(prompts * profiles) evaluations of the scored
  // tokens. An error names the profile.
  [[nodiscard]] Result<std::vector<ProfileScore>> Evaluate(
      std::span<const Profile> profiles) override;

 private:
  struct Prompt {
    std::string set;
    std::vector<Token> tokens;  // context, then scored
  };
  [[nodiscard]] Result<ReferenceDistributions> ReferenceOf(const Prompt& prompt,
                                                           std::span<const KvBuffer> frames);
  [[nodiscard]] Result<PromptScore> ScoreProfile(const Prompt& prompt, const Profile& profile,
                                                 std::span<const KvBuffer> frames,
                                                 const ReferenceDistributions& reference);

  Engine& engine_;
  LmOptions options_;
  std::function<void(std::size_t, std::size_t)> progress_;
  CodecOptions codec_;
  std::vector<Prompt> prompts_;
  std::size_t skipped_ = 0;
};

}  // namespace kvserve
