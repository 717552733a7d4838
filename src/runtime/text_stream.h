// Turns token pieces into text that can be shown: whole UTF-8 characters, cut at a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvserve {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Adds a piece and returns what is certain: no half character and nothing that may yet turn out
  // to be the start of a stop string. Bytes that can never be UTF-8 become U+FFFD.
  [[nodiscard]] std::string Add(std::string_view piece);
  // The rest, at the end of the generation.
  [[nodiscard]] std::string Finish();
  // A stop string has been seen; it and what follows are dropped.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] std::size_t HeldBack() const;

  std::vector<std::string> stops_;
  std::string bytes_;  // not yet valid text
  std::string text_;   // valid, not yet given out
  bool stopped_ = false;
};

// The length of the longest prefix of `bytes` made of whole characters, replacing invalid bytes in
// `text`, which is appended to. What is left (0-3 bytes) may become a character.
[[nodiscard]] std::size_t AppendWholeCharacters(std::string_view bytes, std::string& text);

}  // namespace kvserve
