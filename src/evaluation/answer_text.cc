#include "evaluation/answer_text.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

namespace kvserve {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\v\f";

// <cctype> depends on the locale.
bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool IsPunctuation(char c) {
  return c > ' ' && c < 0x7F && !IsAlphanumeric(c);
}
char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
std::string LowerText(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), Lower);
  return lower;
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

std::vector<std::string> AnswerWords(std::string_view text) {
  std::string plain = LowerText(text);
  std::erase_if(plain, IsPunctuation);
  std::vector<std::string> words = Words(plain);
  std::erase_if(
      words, [](const std::string& word) { return word == "a" || word == "an" || word == "the"; });
  return words;
}

}  // namespace

std::string NormalizeAnswer(std::string_view text) {
  std::string normal;
  for (const std::string& word : AnswerWords(text)) normal += (normal.empty() ? "" : " ") + word;
  return normal;
}

double TokenF1(std::string_view text, std::string_view answer) {
  const std::vector<std::string> words = AnswerWords(text);
  const std::vector<std::string> right = AnswerWords(answer);
  if (words.empty() || right.empty()) return words.empty() && right.empty() ? 1.0 : 0.0;
  std::map<std::string, int> left;
  for (const std::string& word : right) ++left[word];
  double common = 0;
  for (const std::string& word : words) {
    const auto found = left.find(word);
    if (found != left.end() && found->second-- > 0) ++common;
  }
  return 2 * common / static_cast<double>(words.size() + right.size());
}

double BestTokenF1(std::string_view text, std::span<const std::string> answers) {
  double best = 0;
  for (const std::string& answer : answers) best = std::max(best, TokenF1(text, answer));
  return best;
}

bool AnyExactMatch(std::string_view text, std::span<const std::string> answers) {
  const std::string normal = NormalizeAnswer(text);
  return std::ranges::any_of(
      answers, [&](const std::string& answer) { return normal == NormalizeAnswer(answer); });
}

bool ContainsAnswer(std::string_view text, std::string_view answer) {
  if (answer.empty()) return false;
  const std::string in = LowerText(text);
  const std::string wanted = LowerText(answer);
  for (std::size_t at = in.find(wanted); at != std::string::npos; at = in.find(wanted, at + 1)) {
    const std::size_t end = at + wanted.size();
    const bool joined_before =
        at > 0 && IsAlphanumeric(in[at - 1]) && IsAlphanumeric(wanted.front());
    const bool joined_after =
        end < in.size() && IsAlphanumeric(in[end]) && IsAlphanumeric(wanted.back());
    if (!joined_before && !joined_after) return true;
  }
  return false;
}

double EditSimilarity(std::string_view text, std::string_view answer) {
  const std::size_t longer = std::max(text.size(), answer.size());
  if (longer == 0) return 1.0;
  std::vector<std::size_t> row(answer.size() + 1);  // distances of a beginning of `text`
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < answer.size(); ++j) {
      const std::size_t changed = diagonal + (text[i] == answer[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return 1.0 - static_cast<double>(row.back()) / static_cast<double>(longer);
}

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace kvserve
