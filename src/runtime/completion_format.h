// The OpenAI-shaped answers of a decode node, as JSON text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvserve/error.h"
#include "runtime/completion_request.h"
#include "runtime/decode_node.h"

namespace kvserve {

struct HttpError {
  int status = 500;
  std::string body;  // {"error": {...}}
};

// 400, 401, 503, 504 or 500, by the error's code.
[[nodiscard]] HttpError FormatError(const Error& error);
[[nodiscard]] std::string FormatErrorBody(int status, std::string_view message);

// Answers to one request; `created` and the id are the same in all of them.
class CompletionFormat {
 public:
  CompletionFormat(const CompletionRequest& request, std::string model);

  [[nodiscard]] std::string Whole(const GenerateReport& report, const std::string& text) const;
  // Server-sent events, each with its "data: " and blank line.
  [[nodiscard]] std::string Piece(std::string_view text, const std::vector<Token>& tokens);
  [[nodiscard]] std::string Last(const GenerateReport& report);
  [[nodiscard]] static std::string Done() { return "data: [DONE]\n\n"; }

 private:
  const CompletionRequest& request_;
  const std::string model_;
  const std::string id_;
  const std::int64_t created_;
  bool first_ = true;
};

}  // namespace kvserve
