#include "evaluation/engine_evaluator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/token_ranges.h"
#include "base/token_slice.h"
#include "base/try.h"
#include "evaluation/prompt_builder.h"
#include "evaluation/prompt_identity.h"
#include "stages/profile_facts.h"

namespace kvserve {
namespace {

std::uint64_t BytesOf(const PreparedPrompt& prepared) {
  std::uint64_t bytes = prepared.kv.bytes() + prepared.queries.bytes();
  for (const ProbeReference& reference : prepared.references) {
    bytes += reference.answer.bytes() + reference.along.bytes();
  }
  return bytes;
}

PromptScore StartScore(const EvaluationPrompt& prompt) {
  PromptScore score;
  score.set = prompt.set;
  score.task = prompt.task;
  score.context_tokens = prompt.context_tokens;
  score.made = prompt.made;
  const bool choice = prompt.task == Task::kChoice || prompt.task == Task::kChoicePrefix;
  if (choice) score.choices = prompt.probes.size();
  return score;
}

// Adds what the model said to one probe.
void AddProbe(const Probe& probe, const ProbeReference& reference, const ProbeScore& said,
              PromptScore& score) {
  score.answers += said.answer;
  if (!probe.along_generation) return;
  score.generation = {said.along, reference.outcome.generated.size(), said.equal_tokens,
                      said.first_difference};
}

}  // namespace

Result<bool> NeedsQueries(const Profile& profile, DType dtype) {
  KVSERVE_ASSIGN(const ProfileFacts facts, FactsOf(profile.stages, dtype, ProfileOrigin::kCaller));
  return !facts.needs_queries.empty();
}

EngineEvaluator::EngineEvaluator(Engine& engine, EvaluatorOptions options,
                                 std::function<void(std::size_t, std::size_t)> progress,
                                 CaptureStore* store)
    : engine_(engine),
      options_(std::move(options)),
      progress_(std::move(progress)),
      store_(store) {}

Status EngineEvaluator::AddRecords(std::span<const Record> records, std::size_t limit) {
  PromptOptions options;
  options.scored_tokens = options_.scored_tokens;
  options.generate_tokens = options_.generate_tokens;
  options.max_tokens = engine_.info().context_tokens;
  for (std::size_t length = 0; length < options_.context_tokens.size(); ++length) {
    options.context_tokens = options_.context_tokens[length];
    std::map<std::string, std::size_t> added;
    for (const Record& record : records) {
      if (record.task != Task::kLm && length > 0) continue;
      std::size_t& count = added[record.set];
      if (limit > 0 && count == limit) continue;
      KVSERVE_ASSIGN(auto prompt, BuildPrompt(engine_, record, options));
      if (!prompt) {
        ++skipped_;
        continue;
      }
      prompts_.push_back(std::move(*prompt));
      ++count;
    }
  }
  return {};
}

void EngineEvaluator::AddPrompts(std::vector<EvaluationPrompt> prompts) {
  std::ranges::move(prompts, std::back_inserter(prompts_));
}

std::string EngineEvaluator::digest() const {
  return PromptsDigest(engine_.info().fingerprint, prompts_);
}

Result<PreparedPrompt> EngineEvaluator::PrepareKv(const EvaluationPrompt& prompt, bool queries) {
  PreparedPrompt prepared;
  const bool stored = store_ != nullptr && store_->LoadKv(prompt, prepared.kv);
  if (!stored) {
    KVSERVE_TRY(CaptureContext(engine_, prompt.context, options_.chunk_tokens, prepared.kv,
                               queries ? &prepared.queries : nullptr));
    ++captured_;
    if (store_ != nullptr) KVSERVE_TRY(store_->SaveKv(prompt, prepared.kv));
  }
  if (store_ != nullptr) {
    if (auto references = store_->LoadReferences(prompt)) {
      prepared.references = std::move(*references);
      return prepared;
    }
  }
  KVSERVE_ASSIGN(prepared.references, ReferencesOf(engine_, prompt, prepared.kv));
  if (store_ != nullptr) KVSERVE_TRY(store_->SaveReferences(prompt, prepared.references));
  return prepared;
}

Status EngineEvaluator::Prepare(const EvaluationPrompt& prompt, bool queries,
                                std::optional<PreparedPrompt>& slot) {
  if (!slot) {
    KVSERVE_ASSIGN(slot, PrepareKv(prompt, queries));
  }
  if (!queries || !slot->queries.empty()) return {};
  // Stores have no queries: they are larger than the KV, and few profiles need them. The KV stays,
  // since the references belong to it.
  KvBuffer same;
  ++captured_;
  return CaptureContext(engine_, prompt.context, options_.chunk_tokens, same, &slot->queries);
}

Result<std::vector<EngineEvaluator::Coder>> EngineEvaluator::MakeCoders(
    std::span<const Profile> profiles) const {
  std::vector<Coder> coders;
  for (const Profile& profile : profiles) {
    auto encoder = FrameEncoder::Create(profile, options_.codec);
    if (!encoder) {
      return MakeError(encoder.error().code,
                       "profile " + profile.name + ": " + encoder.error().message);
    }
    KVSERVE_ASSIGN(FrameDecoder decoder, FrameDecoder::Create(options_.codec));
    KVSERVE_ASSIGN(const bool queries, NeedsQueries(profile, engine_.info().geometry.dtype));
    coders.push_back({std::move(*encoder), std::move(decoder), queries});
  }
  return coders;
}

Status EngineEvaluator::Transfer(const EvaluationPrompt& prompt, const PreparedPrompt& prepared,
                                 Coder& coder, SequenceId sequence, PromptScore& score) {
  const ConstKvView all = prepared.kv.view();
  const std::uint32_t total = prepared.kv.tokens().end;
  const QueryView queries = prepared.queries.View(total);
  EncodeOptions options;
  options.model = engine_.info().fingerprint;
  options.prompt_tokens = options_.unknown_length ? 0 : total;
  if (coder.needs_queries) options.queries = &queries;
  RequestMemory request = coder.encoder.NewRequest();
  options.request = &request;
  std::vector<std::byte> wire;
  KvBuffer decoded;
  std::vector<TokenRange> dropped;
  for (std::uint32_t begin = 0; begin < total;) {
    const std::uint32_t end = begin + std::min(options_.frame_tokens, total - begin);
    const ConstKvView frame = SliceTokens(all, {begin, end});
    options.key = PrefixKey(options.model, std::span(prompt.context).first(end));
    wire.clear();
    {
      const ScopedTimer timer(score.encode_s);
      KVSERVE_TRY(coder.encoder.Encode(frame, options, wire));
    }
    {
      const ScopedTimer timer(score.decode_s);
      KVSERVE_TRY(
          coder.decoder.Decode(wire, {.model = options.model, .key = options.key}, decoded));
    }
    score.raw_bytes += RawBytes(frame);
    score.wire_bytes += wire.size();
    ++score.frames;
    if (coder.encoder.drift().fell_back) {
      if (score.drift_fallbacks++ == 0) score.drift_reason = coder.encoder.drift().reason;
    }
    if (coder.decoder.partly_dropped()) {
      return MakeError(ErrorCode::kUnsupported,
                       "it drops tokens from some layers, keys or values only, and the engine's "
                       "cells are shared by all; thinning them works");
    }
    KVSERVE_TRY(engine_.Inject(sequence, std::as_const(decoded).view()));
    AppendMarked(coder.decoder.dropped(), begin, dropped);
    begin = end;
  }
  // The sequence's end must not be dropped, and while frames are missing any token may be the end.
  for (const TokenRange& tokens : dropped) KVSERVE_TRY(engine_.Drop(sequence, tokens));
  return {};
}

Result<PromptScore> EngineEvaluator::ScoreProfile(const EvaluationPrompt& prompt,
                                                  const PreparedPrompt& prepared, Coder& coder) {
  PromptScore score = StartScore(prompt);
  const auto start = Clock::now();
  KVSERVE_ASSIGN(const OpenedSequence sequence, OpenedSequence::Open(engine_));
  KVSERVE_TRY(Transfer(prompt, prepared, coder, sequence.id(), score));
  ProbeRunner runner(engine_, sequence.id(), prepared.kv.tokens().end);
  std::vector<ProbeOutcome> baseline;
  std::vector<ProbeOutcome> outcomes;
  for (std::size_t i = 0; i < prompt.probes.size(); ++i) {
    const ProbeReference& reference = prepared.references[i];
    KVSERVE_ASSIGN(auto said, runner.Score(prompt.probes[i], reference));
    AddProbe(prompt.probes[i], reference, said, score);
    baseline.push_back(reference.outcome);
    outcomes.push_back(std::move(said.outcome));
  }
  score.baseline = GradePrompt(prompt, baseline);
  score.grades = GradePrompt(prompt, outcomes);
  score.seconds = SecondsSince(start);
  return score;
}

Result<std::vector<ProfileScore>> EngineEvaluator::Evaluate(std::span<const Profile> profiles) {
  if (prompts_.empty()) {
    return MakeError(ErrorCode::kBadInput, "no prompt to evaluate: " + std::to_string(skipped_) +
                                               " records are too short or too long");
  }
  KVSERVE_ASSIGN(auto coders, MakeCoders(profiles));
  const bool queries = std::ranges::any_of(coders, &Coder::needs_queries);
  kept_.resize(prompts_.size());
  std::vector<std::vector<PromptScore>> scores(profiles.size());
  const std::size_t steps = prompts_.size() * (profiles.size() + 1);
  std::size_t done = 0;
  const auto step = [&] {
    ++done;
    if (progress_) progress_(done, steps);
  };
  for (std::size_t p = 0; p < prompts_.size(); ++p) {
    const std::uint64_t before = kept_[p] ? BytesOf(*kept_[p]) : 0;
    KVSERVE_TRY(Prepare(prompts_[p], queries, kept_[p]));
    step();
    for (std::size_t i = 0; i < profiles.size(); ++i) {
      auto score = ScoreProfile(prompts_[p], *kept_[p], coders[i]);
      if (!score) {
        return MakeError(score.error().code,
                         "profile " + profiles[i].name + ": " + score.error().message);
      }
      scores[i].push_back(std::move(*score));
      step();
    }
    kept_bytes_ += BytesOf(*kept_[p]) - before;
    if (kept_bytes_ <= options_.keep_bytes) continue;
    kept_bytes_ -= BytesOf(*kept_[p]);
    kept_[p].reset();
  }
  std::vector<ProfileScore> totals;
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    totals.push_back(Summarize(profiles[i].name, scores[i]));
  }
  return totals;
}

}  // namespace kvserve
