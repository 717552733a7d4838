// Measures of generated text against right answers.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kvserve {

// Lower case, without punctuation and the articles a, an, the; words separated by one space (the
// normalization of SQuAD, Rajpurkar et al. 2016). Bytes beyond ASCII stay.
[[nodiscard]] std::string NormalizeAnswer(std::string_view text);

// Harmonic mean of precision and recall over the words of the normalized texts; 0..1. Two texts
// without words are equal.
[[nodiscard]] double TokenF1(std::string_view text, std::string_view answer);

// The best over several answers.
[[nodiscard]] double BestTokenF1(std::string_view text, std::span<const std::string> answers);
[[nodiscard]] bool AnyExactMatch(std::string_view text, std::span<const std::string> answers);

// Whether the answer occurs in the text, upper and lower case alike, and not as part of a longer
// number or word. An empty answer never does.
[[nodiscard]] bool ContainsAnswer(std::string_view text, std::string_view answer);

// 1 - Levenshtein distance / length of the longer one, on bytes; 1 for two empty texts.
// O(product of the lengths).
[[nodiscard]] double EditSimilarity(std::string_view text, std::string_view answer);

// Without blanks at both ends.
[[nodiscard]] std::string_view Trim(std::string_view text);

}  // namespace kvserve
