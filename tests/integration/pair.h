// A prefill node and a decode node with fake engines in one process, for tests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/testing/fake_engine.h"
#include "runtime/decode_node.h"
#include "runtime/prefill_node.h"

namespace kvserve::testing {

// An engine on its worker; `engine` is for counters only.
struct FakeWorker {
  explicit FakeWorker(FakeEngineOptions options = {});
  FakeEngine* engine = nullptr;
  std::unique_ptr<EngineWorker> worker;
};

struct PairOptions {
  FakeEngineOptions prefill_engine;
  FakeEngineOptions decode_engine;
  PrefillNodeOptions prefill;
  DecodeNodeOptions decode;
  PairOptions() {
    decode.profile = "none";
    decode.chunk_tokens = prefill.chunk_tokens = 16;
    decode.deadline_s = 60.0;
    decode.first_backoff_s = 0.0;
  }
};

class Pair {
 public:
  explicit Pair(PairOptions options = {});
  void StartPrefill();
  void StopPrefill() { prefill.reset(); }
  // The decode node; made by the constructor, again after a change of `options.decode`.
  void StartDecode(const HostPort& peer);

  PairOptions options;
  FakeWorker prefill_worker;
  FakeWorker decode_worker;
  std::unique_ptr<PrefillNode> prefill;
  std::unique_ptr<DecodeNode> decode;
};

// A prompt of printable tokens that depends on `salt`.
std::vector<Token> Prompt(std::size_t tokens, unsigned salt = 1);

GenerateRequest Greedy(std::vector<Token> prompt, std::uint32_t max_tokens = 12,
                       std::string profile = "");

// Runs a request to its end; the test fails if it does.
GenerateReport MustGenerate(DecodeNode& node, const GenerateRequest& request);

// The tokens of a node without a prefill node: what every exact profile has to reproduce.
std::vector<Token> LocalTokens(const GenerateRequest& request, std::uint32_t chunk_tokens = 16);

// Waits (at most 20 s) until `condition` holds; false if it never did.
bool Eventually(const std::function<bool()>& condition);

}  // namespace kvserve::testing
