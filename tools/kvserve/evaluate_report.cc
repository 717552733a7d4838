#include "evaluate_report.h"

#include <cstdio>

#include "table.h"

namespace kvserve::tool {
namespace {

std::string Range(const Interval& interval, int digits) {
  return Fixed(interval.low, digits) + "-" + Fixed(interval.high, digits);
}

// A share with its interval, or what is wrong with it.
std::string ShareText(const DatasetScore& score) {
  const std::string text = Fixed(score.value, 3) + " of " + Fixed(score.baseline, 3);
  return score.weak_baseline ? text + " (baseline too weak to judge)" : text;
}

void PrintTotals(std::span<const ProfileScore> scores) {
  Table table({"profile", "ratio", "kl", "kl 95 %", "top-1", "nll delta", "retrieval",
               "encode MB/s", "decode MB/s", "seconds"});
  for (const ProfileScore& score : scores) {
    table.Add({score.profile, Fixed(score.compression_ratio, 2), Fixed(score.kl, 5),
               Range(score.kl_ci95, 5), Fixed(score.top1_agreement, 4), Fixed(score.nll_delta, 5),
               score.retrieval ? ShareText(*score.retrieval) : "-",
               Fixed(score.encode_bytes_per_s / 1e6, 1), Fixed(score.decode_bytes_per_s / 1e6, 1),
               Fixed(score.seconds, 1)});
  }
  table.Print();
  for (const ProfileScore& score : scores) {
    if (score.drift_fallbacks == 0) continue;
    std::printf("%s: %zu of %zu frames fell back; the first by its %s\n", score.profile.c_str(),
                score.drift_fallbacks, score.frames, score.drift_reason.c_str());
  }
}

void PrintSets(std::span<const ProfileScore> scores) {
  Table table({"set", "n", "measure", "profile", "baseline", "value", "relative", "95 %", "kl",
               "ratio", ""});
  const auto add = [&](const std::string& profile, const std::string& name,
                       const DatasetScore& set) {
    table.Add({name, std::to_string(set.n), set.metric, profile, Fixed(set.baseline, 4),
               Fixed(set.value, 4), Fixed(set.relative_accuracy, 4), Range(set.ci95, 4),
               Fixed(set.kl, 5), Fixed(set.compression_ratio, 2),
               set.weak_baseline ? "baseline too weak to judge" : ""});
  };
  // All profiles have the same prompts, and so the same sets.
  for (const auto& [name, unused] : scores.front().datasets) {
    for (const ProfileScore& score : scores) add(score.profile, name, score.datasets.at(name));
  }
  if (scores.front().retrieval) {
    for (const auto& [name, unused] : scores.front().retrieval->sets) {
      for (const ProfileScore& score : scores) {
        add(score.profile, name, score.retrieval->sets.at(name));
      }
    }
  }
  std::printf("\n");
  table.Print();
}

void PrintContexts(std::span<const ProfileScore> scores) {
  if (scores.front().contexts.size() < 2) return;
  Table table({"context", "profile", "ratio", "kl", "kl 95 %", "top-1", "retrieval"});
  for (std::size_t i = 0; i < scores.front().contexts.size(); ++i) {
    for (const ProfileScore& score : scores) {
      const ContextScore& context = score.contexts[i];
      table.Add({std::to_string(context.context_tokens), score.profile,
                 Fixed(context.total.compression_ratio, 2), Fixed(context.total.kl, 5),
                 Range(context.total.kl_ci95, 5), Fixed(context.total.top1_agreement, 4),
                 context.retrieval ? ShareText(*context.retrieval) : "-"});
    }
  }
  std::printf("\n");
  table.Print();
}

void PrintGenerations(std::span<const ProfileScore> scores) {
  if (!scores.front().generation) return;
  Table table({"generation", "texts", "tokens", "kl", "top-1", "equal tokens", "first difference",
               "same texts"});
  for (const ProfileScore& score : scores) {
    const GenerationScore& own = *score.generation;
    table.Add({score.profile, std::to_string(own.n), Fixed(own.tokens, 0), Fixed(own.kl, 5),
               Fixed(own.top1_agreement, 4), Fixed(own.equal_share, 4),
               Fixed(own.first_difference, 1), std::to_string(own.same_texts)});
  }
  std::printf("\n");
  table.Print();
}

}  // namespace

void PrintEvaluation(std::span<const ProfileScore> scores) {
  PrintTotals(scores);
  PrintContexts(scores);
  PrintSets(scores);
  PrintGenerations(scores);
}

}  // namespace kvserve::tool
