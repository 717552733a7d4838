#include "runtime/completion_request.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/try.h"

namespace kvserve {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::uint32_t kDefaultCompletionTokens = 16;
// On average over a prompt; vocabularies have words of a few bytes and runs of blanks.
constexpr std::size_t kMaxTokenBytes = 128;

tl::unexpected<Error> Invalid(std::string_view field, std::string_view wanted) {
  return MakeError(ErrorCode::kInvalidArgument,
                   std::string(field) + " should be " + std::string(wanted));
}

// Whether brackets nest deeper than kMaxDepth; strings are skipped. The parser would spend memory
// on every level.
bool TooDeep(std::string_view body) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

Result<double> Number(const Json& value, std::string_view field, double low, double high) {
  if (value.is_number()) {
    const double number = value.get<double>();
    if (number >= low && number <= high) return number;
  }
  return Invalid(field, "a number from " + Json(low).dump() + " to " + Json(high).dump());
}

Result<std::uint32_t> Count(const Json& value, std::string_view field) {
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() - 1 < std::numeric_limits<std::int32_t>::max()) {
    return value.get<std::uint32_t>();
  }
  return Invalid(field, "a positive integer");
}

Result<bool> Flag(const Json& value, std::string_view field) {
  if (value.is_boolean()) return value.get<bool>();
  return Invalid(field, "true or false");
}

Result<std::vector<std::string>> Stops(const Json& value) {
  std::vector<std::string> stops;
  const Json list = value.is_string() ? Json::array({value}) : value;
  if (!list.is_array() || list.size() > kMaxStops) return Invalid("stop", "at most 16 strings");
  for (const Json& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty() ||
        stop.get_ref<const std::string&>().size() > kMaxStopBytes) {
      return Invalid("stop", "strings of 1 to 1024 bytes");
    }
    stops.push_back(stop.get<std::string>());
  }
  return stops;
}

// A text that cannot fit is refused unread: with many control words the tokenizer's time grows with
// the square of its length, and nothing ends it early.
Result<std::vector<Token>> Tokenize(std::string_view prompt, const Engine& text) {
  const std::size_t context = text.info().context_tokens;
  if (prompt.size() / kMaxTokenBytes >= context) {
    return MakeError(ErrorCode::kInvalidArgument, "a prompt of " + std::to_string(prompt.size()) +
                                                      " bytes does not fit a context of " +
                                                      std::to_string(context) + " tokens");
  }
  return text.Tokenize(prompt, true, true);
}

Result<std::vector<Token>> PromptTokens(const Json& value, const Engine& text) {
  const Json& prompt =
      value.is_array() && value.size() == 1 && !value[0].is_number() ? value[0] : value;
  if (prompt.is_string()) return Tokenize(prompt.get_ref<const std::string&>(), text);
  std::vector<Token> tokens;
  if (!prompt.is_array()) return Invalid("prompt", "one string or one array of token ids");
  for (const Json& token : prompt) {
    if (!token.is_number_unsigned() ||
        token.get<std::uint64_t>() > std::numeric_limits<Token>::max()) {
      return Invalid("prompt", "one string or one array of token ids");
    }
    tokens.push_back(token.get<Token>());
  }
  return tokens;
}

Result<std::string> MessageText(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return Invalid("messages[].content", "a string or text parts");
  for (const Json& part : content) {
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      return Invalid("messages[].content", "a string or text parts");
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

Result<std::vector<Token>> ChatTokens(const Json& value, const Engine& text) {
  if (!value.is_array() || value.empty()) return Invalid("messages", "an array with a message");
  std::vector<ChatMessage> messages;
  for (const Json& message : value) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content")) {
      return Invalid("messages[]", "an object with role and content");
    }
    KVSERVE_ASSIGN(std::string content, MessageText(message["content"]));
    messages.push_back({message["role"].get<std::string>(), std::move(content)});
  }
  KVSERVE_ASSIGN(const std::string prompt, text.ChatPrompt(messages));
  return Tokenize(prompt, text);
}

Status KvserveOptions(const Json& value, GenerateRequest& generate) {
  if (!value.is_object()) return Invalid("kvserve", "an object");
  for (const auto& [key, option] : value.items()) {
    if (key != "profile") {
      return MakeError(ErrorCode::kInvalidArgument,
                       "kvserve." + key + " is not known; there is kvserve.profile");
    }
    if (!option.is_string() || option.get_ref<const std::string&>().empty()) {
      return Invalid("kvserve.profile", "a profile such as \"lossless\"");
    }
    generate.profile = option.get<std::string>();
  }
  return {};
}

// Fields whose value changes nothing: what OpenAI clients send although it is the default.
bool IsNeutral(std::string_view field, const Json& value) {
  if (field == "user" || field == "stream_options" || field == "metadata") return true;
  if (field == "n" || field == "best_of") return value == 1;
  if (field == "echo" || field == "logprobs" || field == "store" || field == "top_logprobs") {
    return value == false || value == 0;
  }
  if (field == "frequency_penalty" || field == "presence_penalty") return value == 0;
  if (field == "logit_bias" || field == "tools") return value.empty();
  return field == "suffix" && value.is_string() && value.get_ref<const std::string&>().empty();
}

class Parser {
 public:
  Parser(CompletionRequest& request, const Engine& text) : request_(request), text_(text) {}

  [[nodiscard]] Status Field(const std::string& key, const Json& value) {
    GenerateRequest& generate = request_.generate;
    const bool chat = request_.endpoint == Endpoint::kChat;
    if (value.is_null()) return {};
    if (key == "model") {
      if (!value.is_string()) return Invalid(key, "a string");
      request_.model = value.get<std::string>();
    } else if (key == (chat ? "messages" : "prompt")) {
      KVSERVE_ASSIGN(generate.prompt, chat ? ChatTokens(value, text_) : PromptTokens(value, text_));
    } else if (key == "max_tokens" || (chat && key == "max_completion_tokens")) {
      KVSERVE_ASSIGN(generate.max_tokens, Count(value, key));
      limited_ = true;
    } else if (key == "temperature") {
      KVSERVE_ASSIGN(const double number, Number(value, key, 0, 2));
      generate.sampling.temperature = static_cast<float>(number);
    } else if (key == "top_p") {
      KVSERVE_ASSIGN(const double number, Number(value, key, 0, 1));
      generate.sampling.top_p = static_cast<float>(number);
    } else if (key == "seed") {
      if (!value.is_number_integer()) return Invalid(key, "an integer");
      generate.sampling.seed = value.get<std::uint64_t>();
      seeded_ = true;
    } else if (key == "stop") {
      KVSERVE_ASSIGN(generate.stops, Stops(value));
    } else {
      return Switch(key, value);
    }
    return {};
  }

  [[nodiscard]] Status Finish() {
    GenerateRequest& generate = request_.generate;
    const bool chat = request_.endpoint == Endpoint::kChat;
    if (generate.prompt.empty()) {
      return MakeError(ErrorCode::kInvalidArgument,
                       std::string(chat ? "messages" : "prompt") + " is missing or empty");
    }
    if (!limited_) generate.max_tokens = kDefaultCompletionTokens;
    if (!limited_ && chat) {
      const std::size_t context = text_.info().context_tokens;
      const std::size_t used = std::min(generate.prompt.size(), context);
      generate.max_tokens = static_cast<std::uint32_t>(std::max<std::size_t>(1, context - used));
    }
    if (!seeded_) {
      std::random_device random;
      generate.sampling.seed = (std::uint64_t{random()} << 32) | random();
    }
    return {};
  }

 private:
  [[nodiscard]] Status Switch(const std::string& key, const Json& value) {
    if (key == "stream") {
      KVSERVE_ASSIGN(request_.stream, Flag(value, key));
    } else if (key == "return_token_ids") {
      KVSERVE_ASSIGN(request_.return_token_ids, Flag(value, key));
    } else if (key == "ignore_eos") {
      KVSERVE_ASSIGN(request_.generate.ignore_end, Flag(value, key));
    } else if (key == "kvserve") {
      return KvserveOptions(value, request_.generate);
    } else if (!IsNeutral(key, value)) {
      return MakeError(ErrorCode::kInvalidArgument, key + " is not supported here with that value");
    }
    return {};
  }

  CompletionRequest& request_;
  const Engine& text_;
  bool limited_ = false;
  bool seeded_ = false;
};

}  // namespace

Result<CompletionRequest> ParseCompletionRequest(Endpoint endpoint, std::string_view body,
                                                 const Engine& text) {
  if (TooDeep(body)) {
    return MakeError(ErrorCode::kInvalidArgument, "the body nests deeper than 32 levels");
  }
  const Json document = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return MakeError(ErrorCode::kInvalidArgument, "the body should be a JSON object");
  }
  CompletionRequest request;
  request.endpoint = endpoint;
  Parser parser(request, text);
  for (const auto& [key, value] : document.items()) KVSERVE_TRY(parser.Field(key, value));
  KVSERVE_TRY(parser.Finish());
  return request;
}

}  // namespace kvserve
