#include "evaluation/retrieval_prompts.h"

#include <algorithm>
#include <random>
#include <string>

#include "base/try.h"
#include "evaluation/filler_text.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kMinContextTokens = 128;
constexpr std::uint32_t kMoreThanAnswerTokens = 16;
constexpr std::size_t kPairs = 4;
constexpr std::size_t kNeedles = 4;

constexpr const char* kNames[] = {"Alder",   "Birch",  "Cedar",  "Dahlia",  "Elm",    "Fern",
                                  "Ginger",  "Hazel",  "Iris",   "Jasmine", "Laurel", "Maple",
                                  "Nettle",  "Olive",  "Poppy",  "Quince",  "Rowan",  "Sage",
                                  "Thistle", "Willow", "Yarrow", "Clover",  "Tulip",  "Violet"};

// What one prompt says and asks.
struct Hidden {
  std::vector<std::string> statements;  // in the order of their places
  std::vector<double> depths;           // of each, 0 at the beginning of the context, 1 at its end
  std::string question;
  std::string answer;
};

std::string Digits(std::mt19937_64& random, std::size_t count) {
  std::string digits;
  while (digits.size() < count) {
    digits += static_cast<char>((digits.empty() ? '1' : '0') +
                                static_cast<char>(random() % (digits.empty() ? 9 : 10)));
  }
  return digits;
}

std::vector<std::string> DrawNames(std::mt19937_64& random, std::size_t count) {
  std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  for (std::size_t i = 0; i < count; ++i)
    std::swap(names[i], names[i + random() % (names.size() - i)]);
  names.resize(count);
  return names;
}

Hidden Passkey(std::mt19937_64& random, double depth) {
  const std::string key = Digits(random, 5);
  return {{"\n\nThe secret pass key is " + key + ". Remember it: " + key +
           " is the secret pass key.\n\n"},
          {depth},
          "\n\nQuestion: What is the secret pass key mentioned in the text above?\n"
          "Answer: The secret pass key is",
          key};
}

Hidden KeyValue(std::mt19937_64& random, double depth) {
  std::string list = "\n\n";
  const std::vector<std::string> keys = DrawNames(random, kPairs);
  const std::size_t asked = random() % kPairs;
  std::string answer;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const std::string value = Digits(random, 4);
    list += "The door code of the " + keys[i] + " room is " + value + ".\n";
    if (i == asked) answer = value;
  }
  return {{list + "\n"}, {depth}, "\n\nThe door code of the " + keys[asked] + " room is", answer};
}

Hidden Needle(std::mt19937_64& random, double depth) {
  Hidden hidden;
  const std::vector<std::string> names = DrawNames(random, kNeedles);
  const auto asked = static_cast<std::size_t>(depth * kNeedles) % kNeedles;
  for (std::size_t i = 0; i < kNeedles; ++i) {
    const std::string code = Digits(random, 5);
    std::string& statement = hidden.statements.emplace_back("\n\nThe secret code of ");
    statement.append(names[i]).append(" is ").append(code).append(". Remember it: ");
    statement.append(code).append(" is the secret code of ").append(names[i]).append(".\n\n");
    hidden.depths.push_back((static_cast<double>(i) + 0.5) / kNeedles);
    if (i == asked) hidden.answer = code;
  }
  hidden.question = "\n\nQuestion: What is the secret code of " + names[asked] +
                    " mentioned in the text above?\nAnswer: The secret code of " + names[asked] +
                    " is";
  return hidden;
}

struct Kind {
  const char* set;
  Hidden (*make)(std::mt19937_64& random, double depth);
};
constexpr Kind kKinds[] = {{"passkey", Passkey}, {"key_value", KeyValue}, {"needle", Needle}};

void Append(std::vector<Token>& tokens, std::span<const Token> more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

// Whole sentences around the statements, then cut at the end to the length that is wanted.
Result<std::vector<Token>> ContextOf(const Engine& engine, const Hidden& hidden,
                                     std::uint32_t context_tokens, std::uint64_t seed) {
  std::vector<std::vector<Token>> statements;
  std::size_t said = 0;
  for (const std::string& statement : hidden.statements) {
    KVSERVE_ASSIGN(statements.emplace_back(), engine.Tokenize(statement, false, false));
    said += statements.back().size();
  }
  const auto too_short = [&] {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a context of " + std::to_string(context_tokens) +
                         " tokens is too short for what is hidden in it");
  };
  if (said * 2 > context_tokens) return too_short();
  FillerText filler(seed);
  KVSERVE_ASSIGN(auto tokens, engine.Tokenize(filler.Sentence(), true, false));
  const std::size_t filled = context_tokens - said;  // tokens of prose
  std::size_t prose = tokens.size();
  std::size_t next = 0;
  std::size_t said_end = 0;
  while (prose < filled || next < statements.size()) {
    KVSERVE_ASSIGN(const auto sentence, engine.Tokenize(filler.Sentence(), false, false));
    const bool last = prose + sentence.size() >= filled;  // cut, so nothing may come after it
    while (
        next < statements.size() &&
        (last || static_cast<double>(prose) >= hidden.depths[next] * static_cast<double>(filled))) {
      Append(tokens, statements[next++]);
      said_end = tokens.size();
    }
    Append(tokens, sentence);
    prose += sentence.size();
  }
  if (said_end > context_tokens) return too_short();
  tokens.resize(context_tokens);
  return tokens;
}

}  // namespace

Result<std::vector<EvaluationPrompt>> MakeRetrievalPrompts(const Engine& engine,
                                                           const RetrievalOptions& options) {
  if (options.context_tokens < kMinContextTokens) {
    return MakeError(ErrorCode::kInvalidArgument, "retrieval prompts need a context of at least " +
                                                      std::to_string(kMinContextTokens) +
                                                      " tokens, not " +
                                                      std::to_string(options.context_tokens));
  }
  std::vector<EvaluationPrompt> prompts;
  for (const Kind& kind : kKinds) {
    for (std::uint32_t i = 0; i < options.prompts_per_kind; ++i) {
      std::mt19937_64 random(options.seed * 1000003 + i * 31 + prompts.size());
      // 0.05 .. 0.9, as far apart as they can be.
      const double depth = 0.05 + 0.85 * (i + 0.5) / options.prompts_per_kind;
      const Hidden hidden = kind.make(random, depth);
      EvaluationPrompt& prompt = prompts.emplace_back();
      prompt.set = kind.set;
      prompt.id =
          prompt.set + "/" + std::to_string(options.context_tokens) + "/" + std::to_string(i);
      prompt.task = Task::kRetrieval;
      prompt.made = true;
      prompt.context_tokens = options.context_tokens;
      KVSERVE_ASSIGN(prompt.context, ContextOf(engine, hidden, options.context_tokens, random()));
      Probe& probe = prompt.probes.emplace_back();
      KVSERVE_ASSIGN(probe.lead, engine.Tokenize(hidden.question, false, false));
      KVSERVE_ASSIGN(probe.answer, engine.Tokenize(" " + hidden.answer, false, false));
      probe.accepted = {hidden.answer};
      probe.generate_tokens =
          static_cast<std::uint32_t>(probe.answer.size()) + kMoreThanAnswerTokens;
    }
  }
  return prompts;
}

}  // namespace kvserve
