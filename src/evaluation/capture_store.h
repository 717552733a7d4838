// Captured KV and references of prompts on disk, so that a second run needs no model evaluation for
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "evaluation/prepared_prompt.h"
#include "kvserve/geometry.h"

namespace kvserve {

// A folder of files that may be deleted at any time. What an entry depends on is its name: model
// and cache dtype (`model`), `engine` (whatever else decides the engine's arithmetic), the tokens,
// the chunks of the prefill, and for references the probes. `<name>.kvs` is a file of one lossless
// frame (docs/FORMAT.md), `<name>.ref` the references:
//   "KVSREF1\n", uint32 version, uint64 payload bytes, payload, uint64 XXH3 of the payload
// A file that is damaged, of another version or of another prompt counts as missing and is told to
// `notice` in one line. Files appear whole or not at all. One thread at a time.
class CaptureStore {
 public:
  struct Identity {
    Fingerprint model;
    KvGeometry geometry;
    std::uint32_t vocabulary = 0;
    std::uint32_t chunk_tokens = 0;
    std::string engine;
  };

  // Makes the folder if it is not there. kBadInput when that fails.
  [[nodiscard]] static Result<CaptureStore> Open(const std::string& folder, Identity identity,
                                                 std::function<void(const std::string&)> notice);

  // Whether the KV was there.
  [[nodiscard]] bool LoadKv(const EvaluationPrompt& prompt, KvBuffer& kv);
  [[nodiscard]] std::optional<std::vector<ProbeReference>> LoadReferences(
      const EvaluationPrompt& prompt);
  // kBadInput or kResourceExhausted when the file cannot be written.
  [[nodiscard]] Status SaveKv(const EvaluationPrompt& prompt, const KvBuffer& kv);
  [[nodiscard]] Status SaveReferences(const EvaluationPrompt& prompt,
                                      std::span<const ProbeReference> references);

 private:
  CaptureStore(std::string folder, Identity identity,
               std::function<void(const std::string&)> notice)
      : folder_(std::move(folder)), identity_(std::move(identity)), notice_(std::move(notice)) {}

  [[nodiscard]] std::string KvPath(const EvaluationPrompt& prompt) const;
  [[nodiscard]] std::string ReferencePath(const EvaluationPrompt& prompt) const;
  [[nodiscard]] Status ReadKv(const std::string& path, const EvaluationPrompt& prompt,
                              KvBuffer& kv) const;
  [[nodiscard]] Result<std::vector<ProbeReference>> ReadReferences(
      const std::string& path, const EvaluationPrompt& prompt) const;

  std::string folder_;
  Identity identity_;
  std::function<void(const std::string&)> notice_;
};

}  // namespace kvserve
