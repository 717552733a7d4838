#include "runtime/completion_format.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "stages/profile_facts.h"

namespace kvserve {
namespace {

using Json = nlohmann::json;

// Text that reached us may hold bytes that are not UTF-8 (a model name, a peer's message).
std::string Dump(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string NewId(Endpoint endpoint) {
  std::random_device random;
  std::string id = endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-";
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < 24; ++i) id += kDigits[random() % 16];
  return id;
}

std::int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Json Usage(const CompletionRequest& request, const GenerateReport& report) {
  const std::size_t prompt = request.generate.prompt.size();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", report.tokens.size()},
          {"total_tokens", prompt + report.tokens.size()}};
}

// Busy time of each stage; they overlap, so their sum may exceed jct_ms.
Json StagesMs(const GenerateReport& report) {
  const KvTransferReport& transfer = report.transfer;
  return {{"prefill", transfer.prefill_s * 1e3},
          {"encode", transfer.encode_s * 1e3},
          {"wire", transfer.wire_s * 1e3},
          {"decode", transfer.decode_s * 1e3},
          {"first_token", report.first_token_s * 1e3},
          {"rest", report.rest_s * 1e3}};
}

Json Kvserve(const GenerateReport& report) {
  const KvTransferReport& transfer = report.transfer;
  const double ratio = transfer.wire_bytes == 0 ? 1.0
                                                : static_cast<double>(transfer.raw_bytes) /
                                                      static_cast<double>(transfer.wire_bytes);
  return {{"profile", report.profile},
          {"quality_class", QualityClassOf(report.profile)},
          {"compression_ratio", ratio},
          {"wire_bytes", transfer.wire_bytes},
          {"raw_bytes", transfer.raw_bytes},
          {"reason", report.reason},
          {"transferred_tokens", transfer.tokens},
          {"recomputed_tokens", report.recomputed_tokens},
          {"chunks", transfer.chunks},
          {"lossless_fallback_chunks", transfer.lossless_fallback_chunks},
          {"drift_fallback_chunks", transfer.drift_fallback_chunks},
          {"link_bytes_per_s", transfer.link_bytes_per_s},
          {"stages_ms", StagesMs(report)},
          {"ttft_ms", report.ttft_s * 1e3},
          {"jct_ms", report.jct_s * 1e3}};
}

const char* ErrorType(int status) {
  switch (status) {
    case 400:
    case 404:
    case 405:
    case 413: return "invalid_request_error";
    case 401: return "authentication_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return "server_error";
  }
}

int HttpStatus(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kBadInput: return 400;
    case ErrorCode::kPermissionDenied: return 401;
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kCancelled: return 503;
    case ErrorCode::kDeadlineExceeded: return 504;
    default: return 500;
  }
}

}  // namespace

std::string FormatErrorBody(int status, std::string_view message) {
  return Dump({{"error",
                {{"message", message},
                 {"type", ErrorType(status)},
                 {"param", nullptr},
                 {"code", status}}}});
}

HttpError FormatError(const Error& error) {
  const int status = HttpStatus(error.code);
  return {status, FormatErrorBody(status, error.message)};
}

CompletionFormat::CompletionFormat(const CompletionRequest& request, std::string model)
    : request_(request),
      model_(std::move(model)),
      id_(NewId(request.endpoint)),
      created_(UnixSeconds()) {}

std::string CompletionFormat::Whole(const GenerateReport& report, const std::string& text) const {
  const bool chat = request_.endpoint == Endpoint::kChat;
  Json choice = {{"index", 0}, {"finish_reason", report.finish_reason}, {"logprobs", nullptr}};
  if (chat) {
    choice["message"] = {{"role", "assistant"}, {"content", text}};
  } else {
    choice["text"] = text;
  }
  if (request_.return_token_ids) choice["token_ids"] = report.tokens;
  Json document = {{"id", id_},
                   {"object", chat ? "chat.completion" : "text_completion"},
                   {"created", created_},
                   {"model", model_},
                   {"choices", Json::array({choice})},
                   {"usage", Usage(request_, report)},
                   {"kvserve", Kvserve(report)}};
  if (request_.return_token_ids) {
    document["token_ids"] = report.tokens;
    document["prompt_token_ids"] = request_.generate.prompt;
  }
  return Dump(document);
}

std::string CompletionFormat::Piece(std::string_view text, const std::vector<Token>& tokens) {
  const bool chat = request_.endpoint == Endpoint::kChat;
  Json choice = {{"index", 0}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
  if (chat) {
    choice["delta"] = {{"content", text}};
    if (first_) choice["delta"]["role"] = "assistant";
  } else {
    choice["text"] = text;
  }
  Json document = {{"id", id_},
                   {"object", chat ? "chat.completion.chunk" : "text_completion"},
                   {"created", created_},
                   {"model", model_}};
  if (request_.return_token_ids) {
    choice["token_ids"] = tokens;
    document["token_ids"] = tokens;
    if (first_) document["prompt_token_ids"] = request_.generate.prompt;
  }
  document["choices"] = Json::array({choice});
  first_ = false;
  return "data: " + Dump(document) + "\n\n";
}

std::string CompletionFormat::Last(const GenerateReport& report) {
  const bool chat = request_.endpoint == Endpoint::kChat;
  Json choice = {{"index", 0}, {"finish_reason", report.finish_reason}, {"logprobs", nullptr}};
  if (chat) {
    choice["delta"] = Json::object();
  } else {
    choice["text"] = "";
  }
  const Json document = {{"id", id_},
                         {"object", chat ? "chat.completion.chunk" : "text_completion"},
                         {"created", created_},
                         {"model", model_},
                         {"choices", Json::array({choice})},
                         {"usage", Usage(request_, report)},
                         {"kvserve", Kvserve(report)}};
  return "data: " + Dump(document) + "\n\n";
}

}  // namespace kvserve
