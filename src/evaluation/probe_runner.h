// Evaluates probes behind a context that is in a sequence of the engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "evaluation/distribution.h"
#include "evaluation/evaluation_prompt.h"

namespace kvserve {

// What the uncompressed model said to a probe; profiles are compared with it.
struct ProbeReference {
  ReferenceDistributions answer;  // one row more than the answer has tokens: also what follows it
  ReferenceDistributions along;   // of Probe::along_generation: a row per generated token
  ProbeOutcome outcome;
};

// What a model with another KV said.
struct ProbeScore {
  DistributionSum answer;
  DistributionSum along;
  ProbeOutcome outcome;
  // Of a generation: places at which the reference generated the same token, and the first at which
  // it did not (the number of tokens when there is none).
  std::size_t equal_tokens = 0;
  std::size_t first_difference = 0;
};

// The sequence must hold the context's tokens and nothing behind them; so it does after each call.
// Reference and score run the same evaluations in the same order, so that equal KV gives equal
// bits.
class ProbeRunner {
 public:
  ProbeRunner(Engine& engine, SequenceId sequence, std::uint32_t context_tokens)
      : engine_(engine), sequence_(sequence), context_tokens_(context_tokens) {}

  [[nodiscard]] Result<ProbeReference> Reference(const Probe& probe);
  [[nodiscard]] Result<ProbeScore> Score(const Probe& probe, const ProbeReference& reference);

 private:
  // `sink(first_row, logits)` gets, piece by piece, the rows after the lead's last token and after
  // each of `tokens`.
  template <typename Sink>
  [[nodiscard]] Status Rows(Token lead, std::span<const Token> tokens, Sink sink);
  // Evaluates the lead but for its last token.
  [[nodiscard]] Status StartLead(const Probe& probe);
  // Greedy tokens, and `along` compared with the rows of the guess unless null.
  [[nodiscard]] Result<std::vector<Token>> Generate(const Probe& probe,
                                                    std::span<const Token> guess,
                                                    const ReferenceDistributions* along,
                                                    DistributionSum* sum);
  [[nodiscard]] Status Continue(const Probe& probe, std::vector<Token>& output);
  [[nodiscard]] bool Ends(const Probe& probe, std::span<const Token> output) const;
  [[nodiscard]] ProbeOutcome OutcomeOf(const DistributionSum& answer,
                                       std::vector<Token> generated) const;

  Engine& engine_;
  SequenceId sequence_;
  std::uint32_t context_tokens_;
  std::uint32_t start_ = 0;  // position of the lead's last token
};

}  // namespace kvserve
