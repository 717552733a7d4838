#include "pair.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace kvserve::testing {

FakeWorker::FakeWorker(FakeEngineOptions options) {
  auto started = EngineWorker::Start([&]() -> Result<std::unique_ptr<Engine>> {
    auto made = std::make_unique<FakeEngine>(std::move(options));
    engine = made.get();
    return made;
  });
  worker = std::move(started.value());
}

Pair::Pair(PairOptions given)
    : options(std::move(given)),
      prefill_worker(options.prefill_engine),
      decode_worker(options.decode_engine) {
  StartPrefill();
  StartDecode(prefill->address());
}

void Pair::StartPrefill() {
  auto node = PrefillNode::Start(*prefill_worker.worker, options.prefill);
  ASSERT_TRUE(node) << node.error().message;
  prefill = std::move(*node);
  options.prefill.listen = prefill->address();  // the same port after a restart
}

void Pair::StartDecode(const HostPort& peer) {
  options.decode.prefill = peer;
  auto node = DecodeNode::Create(*decode_worker.worker, options.decode);
  ASSERT_TRUE(node) << node.error().message;
  decode = std::move(*node);
}

std::vector<Token> Prompt(std::size_t tokens, unsigned salt) {
  std::vector<Token> prompt(tokens);
  std::uint32_t state = salt * 2654435761U + 12345U;
  for (Token& token : prompt) {
    state = state * 1664525U + 1013904223U;
    token = static_cast<Token>(32 + (state >> 16) % 95);
  }
  return prompt;
}

GenerateRequest Greedy(std::vector<Token> prompt, std::uint32_t max_tokens, std::string profile) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0.0F;
  request.profile = std::move(profile);
  return request;
}

GenerateReport MustGenerate(DecodeNode& node, const GenerateRequest& request) {
  auto report = node.Generate(
      request, [] { return true; }, [](std::optional<Token>, std::string_view) { return true; });
  EXPECT_TRUE(report) << report.error().message;
  return report.value_or(GenerateReport{});
}

std::vector<Token> LocalTokens(const GenerateRequest& request, std::uint32_t chunk_tokens) {
  const FakeWorker local;
  DecodeNodeOptions options;
  options.chunk_tokens = chunk_tokens;
  const auto node = DecodeNode::Create(*local.worker, options);
  return MustGenerate(**node, request).tokens;
}

bool Eventually(const std::function<bool()>& condition) {
  const Deadline limit = After(20.0);
  while (!condition()) {
    if (Clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace kvserve::testing
