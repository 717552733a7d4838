#include "evaluation/probe_runner.h"

#include <algorithm>

#include "base/try.h"
#include "evaluation/answer_text.h"

namespace kvserve {
namespace {

constexpr std::size_t kPieceTokens = 128;  // logits of a piece are held at a time
constexpr int kMaxSettlings = 4;

Token Likeliest(std::span<const float> logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace

Status ProbeRunner::StartLead(const Probe& probe) {
  KVSERVE_TRY(engine_.Truncate(sequence_, context_tokens_));
  const auto before = std::span(probe.lead).first(probe.lead.size() - 1);
  start_ = context_tokens_;
  for (std::size_t done = 0; done < before.size(); done += kPieceTokens) {
    const auto piece = before.subspan(done, std::min(kPieceTokens, before.size() - done));
    KVSERVE_TRY(engine_.Prefill(sequence_, piece, start_));
    start_ += static_cast<std::uint32_t>(piece.size());
  }
  return {};
}

template <typename Sink>
Status ProbeRunner::Rows(Token lead, std::span<const Token> tokens, Sink sink) {
  KVSERVE_TRY(engine_.Truncate(sequence_, start_));
  std::vector<Token> all;
  all.reserve(tokens.size() + 1);
  all.push_back(lead);
  for (const Token token : tokens) all.push_back(token);
  for (std::size_t done = 0; done < all.size(); done += kPieceTokens) {
    const auto piece = std::span(all).subspan(done, std::min(kPieceTokens, all.size() - done));
    KVSERVE_ASSIGN(const auto logits,
                   engine_.Score(sequence_, piece, start_ + static_cast<std::uint32_t>(done)));
    KVSERVE_TRY(sink(done, logits));
  }
  return {};
}

bool ProbeRunner::Ends(const Probe& probe, std::span<const Token> output) const {
  if (output.size() >= probe.generate_tokens) return true;
  if (output.empty()) return false;
  if (engine_.EndsGeneration(output.back())) return true;
  if (!probe.one_line) return false;
  std::string text;
  for (const Token token : output) text += engine_.TokenText(token);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string::npos && text.find('\n', begin) != std::string::npos;
}

// `output` and the lead's last token but not output's last token are in the sequence.
Status ProbeRunner::Continue(const Probe& probe, std::vector<Token>& output) {
  while (!Ends(probe, output)) {
    const Token last = output.empty() ? probe.lead.back() : output.back();
    const auto position = start_ + static_cast<std::uint32_t>(output.size());
    KVSERVE_ASSIGN(const auto logits, engine_.Decode(sequence_, last, position));
    output.push_back(Likeliest(logits));
  }
  return {};
}

// Evaluates the guess in batches, keeps what greedy generation agrees with, and goes on token by
// token from there: most profiles say what the reference said, and a batch is ten times faster.
Result<std::vector<Token>> ProbeRunner::Generate(const Probe& probe, std::span<const Token> guess,
                                                 const ReferenceDistributions* along,
                                                 DistributionSum* sum) {
  std::vector<Token> output;
  const std::uint32_t vocabulary = engine_.info().vocabulary;
  bool agrees = true;
  const auto compare = [&](std::size_t first_row, std::span<const float> logits) -> Status {
    if (along != nullptr) KVSERVE_TRY(along->Compare(first_row, logits, *sum));
    for (std::size_t at = 0; agrees && at < logits.size(); at += vocabulary) {
      output.push_back(Likeliest(logits.subspan(at, vocabulary)));
      agrees = output.back() == guess[output.size() - 1];
    }
    return {};
  };
  if (!guess.empty()) {
    KVSERVE_TRY(Rows(probe.lead.back(), guess.first(guess.size() - 1), compare));
  }
  KVSERVE_TRY(engine_.Truncate(sequence_, start_ + static_cast<std::uint32_t>(output.size())));
  KVSERVE_TRY(Continue(probe, output));
  return output;
}

ProbeOutcome ProbeRunner::OutcomeOf(const DistributionSum& answer,
                                    std::vector<Token> generated) const {
  ProbeOutcome outcome;
  outcome.nll = answer.nll;
  outcome.answer_tokens = answer.targets;
  outcome.top_answer = answer.targets > 0 && answer.top_targets == answer.targets;
  for (const Token token : generated) {
    if (!engine_.EndsGeneration(token)) outcome.output += engine_.TokenText(token);
  }
  outcome.generated = std::move(generated);
  return outcome;
}

Result<ProbeReference> ProbeRunner::Reference(const Probe& probe) {
  ProbeReference reference;
  const std::uint32_t vocabulary = engine_.info().vocabulary;
  reference.answer = reference.along = ReferenceDistributions(vocabulary);
  KVSERVE_TRY(StartLead(probe));
  // Rows predict the tokens that follow them; the row after the last token has none.
  const auto append = [&](ReferenceDistributions& rows, std::span<const Token> tokens) {
    return [&rows, tokens, vocabulary](std::size_t first, std::span<const float> logits) {
      std::vector<std::int32_t> targets(logits.size() / vocabulary,
                                        ReferenceDistributions::kNoTarget);
      for (std::size_t i = 0; i < targets.size() && first + i < tokens.size(); ++i) {
        targets[i] = tokens[first + i];
      }
      return rows.Append(logits, targets);
    };
  };
  if (!probe.answer.empty()) {
    KVSERVE_TRY(Rows(probe.lead.back(), probe.answer, append(reference.answer, probe.answer)));
  }
  std::vector<Token> generated;
  if (probe.generate_tokens > 0) {
    KVSERVE_TRY(engine_.Truncate(sequence_, start_));
    KVSERVE_TRY(Continue(probe, generated));
    // A batch may decide a tie otherwise than single tokens do, and profiles are evaluated with the
    // reference's tokens as their guess: the reference is what stays when it guesses itself.
    for (int i = 0; i < kMaxSettlings; ++i) {
      KVSERVE_ASSIGN(auto settled, Generate(probe, generated, nullptr, nullptr));
      const bool same = settled == generated;
      generated = std::move(settled);
      if (same) break;
    }
    if (probe.along_generation) {
      KVSERVE_TRY(Rows(probe.lead.back(), std::span(generated).first(generated.size() - 1),
                       append(reference.along, generated)));
    }
  }
  reference.outcome = OutcomeOf(reference.answer.Own(), std::move(generated));
  KVSERVE_TRY(engine_.Truncate(sequence_, context_tokens_));
  return reference;
}

Result<ProbeScore> ProbeRunner::Score(const Probe& probe, const ProbeReference& reference) {
  ProbeScore score;
  KVSERVE_TRY(StartLead(probe));
  if (!probe.answer.empty()) {
    KVSERVE_TRY(Rows(probe.lead.back(), probe.answer,
                     [&](std::size_t first_row, std::span<const float> logits) {
                       return reference.answer.Compare(first_row, logits, score.answer);
                     }));
  }
  std::vector<Token> generated;
  const std::vector<Token>& expected = reference.outcome.generated;
  if (probe.generate_tokens > 0) {
    const auto* along = probe.along_generation ? &reference.along : nullptr;
    KVSERVE_ASSIGN(generated, Generate(probe, expected, along, &score.along));
  }
  const std::size_t both = std::min(generated.size(), expected.size());
  for (std::size_t i = 0; i < both; ++i) score.equal_tokens += generated[i] == expected[i] ? 1 : 0;
  const auto differ = std::mismatch(expected.begin(), expected.begin() + both, generated.begin());
  score.first_difference = static_cast<std::size_t>(differ.first - expected.begin());
  score.outcome = OutcomeOf(score.answer, std::move(generated));
  KVSERVE_TRY(engine_.Truncate(sequence_, context_tokens_));
  return score;
}

}  // namespace kvserve
