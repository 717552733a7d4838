#include "engine/llama/engine_impl.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/try.h"
#include "engine/llama/chunk_state.h"
#include "engine/llama/process.h"
#include "engine/llama/state_blob.h"

namespace kvserve {

namespace {

constexpr llama_seq_id kCells = 0;
constexpr llama_seq_id kScratch = 1;

}  // namespace

Result<SequenceId> LlamaEngine::OpenSequence() {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].open) continue;
    sequences_[i].open = true;
    return static_cast<SequenceId>(i);
  }
  return MakeError(ErrorCode::kResourceExhausted,
                   "all " + std::to_string(sequences_.size()) + " sequences are in use");
}

void LlamaEngine::CloseSequence(SequenceId sequence) {
  if (!CheckOpen(sequence)) return;
  LlamaSequence& state = at(sequence);
  llama_memory_clear(llama_get_memory(state.context.get()), false);
  state.open = false;
  state.next = state.window_begin = 0;
}

Status LlamaEngine::CheckOpen(SequenceId sequence) const {
  if (sequence >= 0 && static_cast<std::size_t>(sequence) < sequences_.size() &&
      sequences_[static_cast<std::size_t>(sequence)].open) {
    return {};
  }
  return MakeError(ErrorCode::kInvalidArgument,
                   "sequence " + std::to_string(sequence) + " is not open");
}

Status LlamaEngine::CheckEvaluation(SequenceId sequence, std::span<const Token> tokens,
                                    std::uint32_t first_position) const {
  KVSERVE_TRY(CheckOpen(sequence));
  const LlamaSequence& state = at(sequence);
  const auto invalid = [](std::string what) {
    return MakeError(ErrorCode::kInvalidArgument, std::move(what));
  };
  if (tokens.empty() || tokens.size() > chunk_tokens_) {
    return invalid(std::to_string(tokens.size()) + " tokens in one call, outside 1.." +
                   std::to_string(chunk_tokens_));
  }
  if (first_position != state.next) {
    return invalid("position " + std::to_string(first_position) + " does not follow the " +
                   std::to_string(state.next) + " tokens of the sequence");
  }
  if (tokens.size() > info_.context_tokens - state.next) {
    return MakeError(ErrorCode::kResourceExhausted, std::to_string(state.next + tokens.size()) +
                                                        " tokens exceed the context of " +
                                                        std::to_string(info_.context_tokens));
  }
  for (const Token token : tokens) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= info_.vocabulary) {
      return invalid("token " + std::to_string(token) + " is outside 0.." +
                     std::to_string(info_.vocabulary - 1));
    }
  }
  const std::uint32_t reach =
      first_position >= window_tokens_ ? first_position + 1 - window_tokens_ : 0;
  if (window_tokens_ > 0 && state.window_begin > reach) {
    return MakeError(ErrorCode::kBadInput, "window layers hold tokens from " +
                                               std::to_string(state.window_begin) + ", position " +
                                               std::to_string(first_position) + " looks back to " +
                                               std::to_string(reach));
  }
  return {};
}

Status LlamaEngine::Evaluate(SequenceId sequence, std::span<const Token> tokens,
                             std::uint32_t first_position, bool logits) {
  KVSERVE_TRY(CheckEvaluation(sequence, tokens, first_position));
  LlamaSequence& state = at(sequence);
  const TokenBatch batch(kCells, tokens, first_position, logits);
  const int code = llama_decode(state.context.get(), batch.get());
  if (code == 0) {
    state.next += static_cast<std::uint32_t>(tokens.size());
    return {};
  }
  llama_memory_seq_rm(llama_get_memory(state.context.get()), kCells,
                      static_cast<llama_pos>(first_position), -1);
  if (code == 1) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "the KV cache has no room for " + std::to_string(tokens.size()) + " tokens");
  }
  return MakeError(ErrorCode::kInternal, "evaluation failed with code " + std::to_string(code) +
                                             ": " + LastEngineError());
}

Status LlamaEngine::Prefill(SequenceId sequence, std::span<const Token> tokens,
                            std::uint32_t first_position) {
  if (!queries_) return Evaluate(sequence, tokens, first_position, false);
  queries_->Begin(first_position, tokens.size());
  Status evaluated = Evaluate(sequence, tokens, first_position, false);
  queries_->End(evaluated.has_value());
  return evaluated;
}

Status LlamaEngine::TapQueries(QueryTap tap) {
  if (!queries_) {
    return MakeError(ErrorCode::kUnsupported,
                     "the model was opened without tap_queries, so its queries cannot be seen");
  }
  queries_->SetTap(std::move(tap));
  return {};
}

Result<std::span<const float>> LlamaEngine::Decode(SequenceId sequence, Token token,
                                                   std::uint32_t position) {
  KVSERVE_TRY(Evaluate(sequence, std::span(&token, 1), position, true));
  const float* logits = llama_get_logits_ith(at(sequence).context.get(), 0);
  if (logits == nullptr) return MakeError(ErrorCode::kInternal, "no logits after evaluation");
  return std::span(logits, info_.vocabulary);
}

Result<std::vector<float>> LlamaEngine::Score(SequenceId sequence, std::span<const Token> tokens,
                                              std::uint32_t first_position) {
  std::vector<float> scores;
  scores.reserve(tokens.size() * info_.vocabulary);
  for (std::size_t done = 0; done < tokens.size();) {
    const auto batch =
        tokens.subspan(done, std::min<std::size_t>(chunk_tokens_, tokens.size() - done));
    KVSERVE_TRY(Evaluate(sequence, batch, first_position + static_cast<std::uint32_t>(done), true));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const float* logits =
          llama_get_logits_ith(at(sequence).context.get(), static_cast<std::int32_t>(i));
      if (logits == nullptr) return MakeError(ErrorCode::kInternal, "no logits after evaluation");
      scores.insert(scores.end(), logits, logits + info_.vocabulary);
    }
    done += batch.size();
  }
  return scores;
}

Status LlamaEngine::Truncate(SequenceId sequence, std::uint32_t tokens) {
  KVSERVE_TRY(CheckOpen(sequence));
  LlamaSequence& state = at(sequence);
  if (tokens > state.next) {
    return MakeError(ErrorCode::kInvalidArgument, "the sequence holds " +
                                                      std::to_string(state.next) + " tokens, not " +
                                                      std::to_string(tokens));
  }
  // The window caches are full ones (ContextParams), so the cells of a window are still there.
  if (!llama_memory_seq_rm(llama_get_memory(state.context.get()), kCells,
                           static_cast<llama_pos>(tokens), -1)) {
    return MakeError(ErrorCode::kInternal,
                     "the KV cache did not give up tokens from " + std::to_string(tokens) + " on");
  }
  state.next = tokens;
  return {};
}

// Saving the scratch sequence copies this chunk only, not everything so far; and its window is
// counted from the chunk's own end.
Status LlamaEngine::SaveChunk(llama_context* context, TokenRange tokens) {
  const llama_memory_t memory = llama_get_memory(context);
  llama_memory_seq_cp(memory, kCells, kScratch, static_cast<llama_pos>(tokens.begin),
                      static_cast<llama_pos>(tokens.end));
  blob_.resize(llama_state_seq_get_size(context, kScratch));
  const std::size_t written = llama_state_seq_get_data(
      context, reinterpret_cast<std::uint8_t*>(blob_.data()), blob_.size(), kScratch);
  llama_memory_seq_rm(memory, kScratch, -1, -1);
  if (written == blob_.size()) return {};
  return MakeError(ErrorCode::kInternal, "saving the state failed: " + LastEngineError());
}

Status LlamaEngine::LoadChunk(llama_context* context, const ConstKvView& chunk) {
  std::vector<std::vector<std::byte>> gathered;
  KVSERVE_TRY(WriteState(StateOf(chunk, layout_, kScratch, gathered), blob_));
  const llama_memory_t memory = llama_get_memory(context);
  const std::size_t read = llama_state_seq_set_data(
      context, reinterpret_cast<const std::uint8_t*>(blob_.data()), blob_.size(), kScratch);
  if (read == blob_.size()) llama_memory_seq_cp(memory, kScratch, kCells, -1, -1);
  llama_memory_seq_rm(memory, kScratch, -1, -1);
  if (read == blob_.size()) return {};
  return MakeError(ErrorCode::kResourceExhausted, "the KV cache did not take " +
                                                      std::to_string(chunk.tokens.size()) +
                                                      " tokens: " + LastEngineError());
}

Status LlamaEngine::Capture(SequenceId sequence, TokenRange tokens, std::uint32_t total_tokens,
                            KvBuffer& out) {
  KVSERVE_TRY(CheckOpen(sequence));
  const std::uint32_t next = at(sequence).next;
  if (tokens.begin >= tokens.end || tokens.end > next || tokens.end > total_tokens) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "tokens [" + std::to_string(tokens.begin) + ", " + std::to_string(tokens.end) +
                         ") are not within the sequence's " + std::to_string(next) +
                         " or beyond the total of " + std::to_string(total_tokens));
  }
  KVSERVE_TRY(SaveChunk(at(sequence).context.get(), tokens));
  KVSERVE_ASSIGN(const auto state, ParseState(blob_, layout_.has_values));
  KVSERVE_TRY(CheckState(state, layout_));
  KVSERVE_TRY(out.Resize(layout_.geometry, tokens, total_tokens));
  return CopyFromState(state, layout_, out);
}

Status LlamaEngine::Inject(SequenceId sequence, const ConstKvView& chunk) {
  KVSERVE_TRY(CheckOpen(sequence));
  KVSERVE_TRY(CheckChunk(chunk, layout_));
  LlamaSequence& target = at(sequence);
  if (chunk.tokens.begin != target.next) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "KV chunk starts at token " + std::to_string(chunk.tokens.begin) +
                         ", the sequence holds " + std::to_string(target.next));
  }
  if (chunk.tokens.end > info_.context_tokens) {
    return MakeError(ErrorCode::kResourceExhausted, std::to_string(chunk.tokens.end) +
                                                        " tokens exceed the context of " +
                                                        std::to_string(info_.context_tokens));
  }
  KVSERVE_TRY(LoadChunk(target.context.get(), chunk));
  target.next = chunk.tokens.end;
  for (std::size_t cache = 0; cache < layout_.slots.size(); ++cache) {
    const TokenRange held = chunk.layers[layout_.slots[cache].front()].tokens;
    if (held.begin != chunk.tokens.begin) target.window_begin = held.begin;
  }
  return {};
}

// A cell is one token of all layers that share a cache; libllama keeps window layers in another
// cache of the same memory, from which it removes too.
Status LlamaEngine::Drop(SequenceId sequence, TokenRange tokens) {
  KVSERVE_TRY(CheckOpen(sequence));
  const LlamaSequence& state = at(sequence);
  if (tokens.empty()) return {};
  const std::string range =
      "[" + std::to_string(tokens.begin) + ", " + std::to_string(tokens.end) + ")";
  if (tokens.end > state.next) {
    return MakeError(
        ErrorCode::kInvalidArgument,
        "tokens " + range + " are beyond the sequence's " + std::to_string(state.next));
  }
  if (tokens.end == state.next) {
    return MakeError(ErrorCode::kUnsupported,
                     "tokens " + range + " include the sequence's last, which must stay");
  }
  if (llama_memory_seq_rm(llama_get_memory(state.context.get()), kCells,
                          static_cast<llama_pos>(tokens.begin),
                          static_cast<llama_pos>(tokens.end))) {
    return {};
  }
  return MakeError(ErrorCode::kUnsupported, "this model's cache cannot drop tokens " + range);
}

}  // namespace kvserve
