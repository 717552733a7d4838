#include "evaluation/prompt_identity.h"

#include <vector>

#include "base/hash.h"

namespace kvserve {

void PutTokens(std::span<const Token> tokens, ByteWriter& out) {
  out.PutVarint(tokens.size());
  out.PutBytes(std::as_bytes(tokens));
}

void PutProbes(const EvaluationPrompt& prompt, ByteWriter& out) {
  for (const Probe& probe : prompt.probes) {
    PutTokens(probe.lead, out);
    PutTokens(probe.answer, out);
    out.Put(probe.generate_tokens);
    out.Put<std::uint8_t>(probe.one_line ? 1 : 0);
    out.Put<std::uint8_t>(probe.along_generation ? 1 : 0);
  }
}

std::string PromptsDigest(const Fingerprint& model, std::span<const EvaluationPrompt> prompts) {
  std::vector<std::byte> key;
  ByteWriter out(key);
  out.PutBytes(std::as_bytes(std::span(model.bytes)));
  for (const EvaluationPrompt& prompt : prompts) {
    PutTokens(prompt.context, out);
    out.PutVarint(prompt.probes.size());
    PutProbes(prompt, out);
  }
  return Hash128(key).hex();
}

}  // namespace kvserve
