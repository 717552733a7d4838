#include "engine/llama/model_text.h"

#include <cstdint>
#include <exception>
#include <string>

namespace kvserve {

Result<std::vector<Token>> TokenizeText(const llama_vocab* vocab, std::string_view text,
                                        bool add_special, bool parse_special) {
  if (text.size() > INT32_MAX) {
    return MakeError(ErrorCode::kBadInput,
                     "text of " + std::to_string(text.size()) + " bytes, at most 2^31 - 1");
  }
  const auto size = static_cast<std::int32_t>(text.size());
  std::vector<Token> tokens(text.size() / 3 + 16);
  const auto tokenize = [&] {
    return llama_tokenize(vocab, text.data(), size, tokens.data(),
                          static_cast<std::int32_t>(tokens.size()), add_special, parse_special);
  };
  std::int32_t count = 0;
  try {
    count = tokenize();
  } catch (const std::exception& exception) {  // of libllama, for bytes that are not UTF-8
    return MakeError(ErrorCode::kBadInput, std::string("text is not UTF-8: ") + exception.what());
  }
  if (count == INT32_MIN) return MakeError(ErrorCode::kBadInput, "text has too many tokens");
  if (count < 0) {  // the negative of what is needed
    tokens.resize(static_cast<std::size_t>(-count));
    count = tokenize();
  }
  if (count < 0) return MakeError(ErrorCode::kInternal, "tokenizer contradicts its own count");
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

std::string PieceOf(const llama_vocab* vocab, Token token) {
  if (token < 0 || token >= llama_vocab_n_tokens(vocab)) return {};
  std::string text(32, '\0');
  const auto convert = [&] {
    return llama_token_to_piece(vocab, token, text.data(), static_cast<std::int32_t>(text.size()),
                                0, false);
  };
  std::int32_t length = convert();
  if (length < 0) {
    text.resize(static_cast<std::size_t>(-length));
    length = convert();
  }
  text.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return text;
}

Result<std::string> ApplyChatTemplate(const llama_model* model,
                                      std::span<const ChatMessage> messages) {
  const char* chat_template = llama_model_chat_template(model, nullptr);
  if (chat_template == nullptr) {
    return MakeError(ErrorCode::kUnsupported, "the model has no chat template; use completions");
  }
  std::vector<llama_chat_message> chat;
  std::size_t bytes = 256;
  for (const ChatMessage& message : messages) {
    if (message.role.find('\0') != std::string::npos ||
        message.content.find('\0') != std::string::npos) {
      return MakeError(ErrorCode::kInvalidArgument, "a chat message contains a NUL character");
    }
    chat.push_back({message.role.c_str(), message.content.c_str()});
    bytes += 2 * (message.role.size() + message.content.size() + 32);
  }
  std::string prompt(bytes, '\0');
  const auto apply = [&] {
    return llama_chat_apply_template(chat_template, chat.data(), chat.size(), true, prompt.data(),
                                     static_cast<std::int32_t>(prompt.size()));
  };
  std::int32_t length = apply();
  if (length > static_cast<std::int32_t>(prompt.size())) {
    prompt.resize(static_cast<std::size_t>(length) + 1);
    length = apply();
  }
  if (length < 0) {
    return MakeError(ErrorCode::kUnsupported,
                     "the model's chat template is not one that libllama knows; use completions");
  }
  prompt.resize(static_cast<std::size_t>(length));
  return prompt;
}

std::string MetadataText(const llama_model* model, const char* key) {
  char text[256];
  const std::int32_t length = llama_model_meta_val_str(model, key, text, sizeof text);
  return length < 0 ? std::string() : std::string(text);
}

}  // namespace kvserve
