#include "evaluation/engine_evaluator.h"

#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "kvserve/codec.h"

namespace kvserve {
namespace {

// One frame there and back; adds sizes and times to `score`.
Status RoundTrip(const KvBuffer& frame, const EncodeOptions& options, FrameEncoder& encoder,
                 FrameDecoder& decoder, KvBuffer& decoded, PromptScore& score) {
  const ConstKvView view = frame.view();
  std::vector<std::byte> wire;
  {
    const ScopedTimer timer(score.encode_s);
    KVSERVE_TRY(encoder.Encode(view, options, wire));
  }
  {
    const ScopedTimer timer(score.decode_s);
    KVSERVE_ASSIGN([[maybe_unused]] const std::size_t length,
                   decoder.Decode(wire, {.model = options.model, .key = options.key}, decoded));
  }
  score.raw_bytes += RawBytes(view);
  score.wire_bytes += wire.size();
  return {};
}

}  // namespace

EngineEvaluator::EngineEvaluator(Engine& engine, LmOptions options,
                                 std::function<void(std::size_t, std::size_t)> progress,
                                 CodecOptions codec)
    : engine_(engine),
      options_(options),
      progress_(std::move(progress)),
      codec_(std::move(codec)) {}

Status EngineEvaluator::AddTexts(std::span<const Record> records, std::size_t limit) {
  const std::size_t wanted = std::size_t{options_.context_tokens} + options_.scored_tokens;
  std::size_t added = 0;
  for (const Record& record : records) {
    if (limit > 0 && added == limit) break;
    KVSERVE_ASSIGN(auto tokens, engine_.Tokenize(record.text, true, false));
    if (tokens.size() < wanted) {
      ++skipped_;
      continue;
    }
    tokens.resize(wanted);
    prompts_.push_back({record.set, std::move(tokens)});
    ++added;
  }
  if (!prompts_.empty()) return {};
  return MakeError(ErrorCode::kBadInput, "none of " + std::to_string(records.size()) +
                                             " texts has " + std::to_string(wanted) +
                                             " tokens, context and scored ones together");
}

Result<ReferenceDistributions> EngineEvaluator::ReferenceOf(const Prompt& prompt,
                                                            std::span<const KvBuffer> frames) {
  const auto scored = std::span(prompt.tokens).subspan(options_.context_tokens);
  KVSERVE_ASSIGN(auto logits, ScoreBehind(engine_, frames, scored));
  return ReferenceDistributions::Create(std::move(logits), engine_.info().vocabulary,
                                        {scored.begin() + 1, scored.end()});
}

Result<PromptScore> EngineEvaluator::ScoreProfile(const Prompt& prompt, const Profile& profile,
                                                  std::span<const KvBuffer> frames,
                                                  const ReferenceDistributions& reference) {
  PromptScore score;
  score.set = prompt.set;
  EncodeOptions options;
  options.model = engine_.info().fingerprint;
  options.prompt_tokens = options_.context_tokens;
  KVSERVE_ASSIGN(FrameEncoder encoder, FrameEncoder::Create(profile, codec_));
  KVSERVE_ASSIGN(FrameDecoder decoder, FrameDecoder::Create(codec_));
  std::vector<KvBuffer> decoded(frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    options.key = PrefixKey(options.model, std::span(prompt.tokens).first(frames[i].tokens().end));
    KVSERVE_TRY(RoundTrip(frames[i], options, encoder, decoder, decoded[i], score));
  }
  const auto scored = std::span(prompt.tokens).subspan(options_.context_tokens);
  KVSERVE_ASSIGN(const auto logits, ScoreBehind(engine_, decoded, scored));
  KVSERVE_ASSIGN(score.score, reference.Compare(logits));
  return score;
}

Result<std::vector<ProfileScore>> EngineEvaluator::Evaluate(std::span<const Profile> profiles) {
  std::vector<std::vector<PromptScore>> scores(profiles.size());
  const std::size_t steps = prompts_.size() * (profiles.size() + 1);
  std::size_t done = 0;
  const auto step = [&] {
    ++done;
    if (progress_) progress_(done, steps);
  };
  for (const Prompt& prompt : prompts_) {
    const auto context = std::span(prompt.tokens).first(options_.context_tokens);
    KVSERVE_ASSIGN(const auto frames, CaptureFrames(engine_, context, options_));
    KVSERVE_ASSIGN(const auto reference, ReferenceOf(prompt, frames));
    step();
    for (std::size_t i = 0; i < profiles.size(); ++i) {
      auto score = ScoreProfile(prompt, profiles[i], frames, reference);
      if (!score) {
        return MakeError(score.error().code,
                         "profile " + profiles[i].name + ": " + score.error().message);
      }
      scores[i].push_back(std::move(*score));
      step();
    }
  }
  std::vector<ProfileScore> totals;
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    totals.push_back(Summarize(profiles[i].name, scores[i]));
  }
  return totals;
}

}  // namespace kvserve
