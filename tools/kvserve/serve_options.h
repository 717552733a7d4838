// Options that both serve nodes share, and what they mean to the engine.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/llama/llama_engine.h"
#include "kvserve/error.h"
#include "net/endpoint.h"
#include "net/token.h"
#include "runtime/engine_worker.h"

namespace kvserve::tool {

struct EngineArguments {
  std::string model;
  std::string cache_dtype;
  std::uint32_t context = 2048;
  std::uint32_t sequences = 4;
  std::uint32_t chunk_tokens = 256;
  int threads = 2;
};
// As CLI::Range, which lets NaN pass.
[[nodiscard]] CLI::Validator NumberWithin(double low, double high);

void AddEngineOptions(CLI::App& command, EngineArguments& arguments);

// Checks what can be checked without loading anything: kInvalidArgument, kBadInput.
[[nodiscard]] Result<LlamaOptions> CheckEngineArguments(const EngineArguments& arguments);

// Opens the engine on its own thread, with a line on stderr before and after.
[[nodiscard]] Result<std::unique_ptr<EngineWorker>> LoadEngine(const LlamaOptions& options);

// An empty path gives an empty token.
[[nodiscard]] Result<AuthToken> ReadToken(const std::string& path);

// kInvalidArgument with the option's name in the message.
[[nodiscard]] Result<HostPort> ParseAddress(const std::string& option, const std::string& text);

// kInvalidArgument when `address` of `option` is not loopback and there is no token.
[[nodiscard]] Status CheckExposure(const std::string& option, const HostPort& address,
                                   const AuthToken& token);

}  // namespace kvserve::tool
