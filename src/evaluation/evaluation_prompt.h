// One prompt to evaluate: a context whose KV goes through a profile, and what is asked behind it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "evaluation/task.h"

namespace kvserve {

// Evaluated behind the context, each probe as if it were the only one.
struct Probe {
  std::vector<Token>
      lead;  // at least one token, not scored: a question, or the prompt's last token
  std::vector<Token> answer;  // scored: likelihood, and distributions along it; may be empty
  // Greedy tokens after the lead; 0: none. They end early with the model's end token and, if so
  // wanted, with the first line end after some text.
  std::uint32_t generate_tokens = 0;
  bool one_line = true;
  bool along_generation = false;      // compare distributions along what the reference generated
  std::vector<std::string> accepted;  // answers that are right in what was generated
};

struct EvaluationPrompt {
  std::string id;
  std::string set;
  Task task = Task::kLm;
  std::uint32_t context_tokens = 0;  // as asked for; 0: the record's own context
  bool made = false;                 // by MakeRetrievalPrompts, no record
  std::vector<Token> context;        // at least one token
  std::vector<Probe> probes;
  std::size_t gold = 0;  // index of the right probe of a choice
};

// What a model said to one probe.
struct ProbeOutcome {
  double nll = 0.0;  // nats of the answer's tokens, summed
  std::size_t answer_tokens = 0;
  bool top_answer = false;       // every token of the answer is the most likely one
  std::vector<Token> generated;  // the ending token included
  std::string output;            // its text
};

}  // namespace kvserve
