"""./dev sparse --data FILE: methods that drop tokens, per head with a real attention mask.

Each prompt is prefilled once. Then the tokens that follow read its KV through a mask per layer and KV
head, at unchanged positions, and are scored against the whole KV: KL and top-1 over the continuation
of texts, and whether all tokens of a passkey are the most probable ones. `scope` is `head` (every
layer and head has its own choice, which no engine of ours can send) or `request` (one choice for
all, by the summed scores, as the selectors make it). Ratio is 16-bit KV over what is kept of it.
Writes out/sparse.json.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path

import torch

from sparse import scores
from sparse.model import Model, Prompt
from sparse.texts import passkey, read_texts

METHODS = ("streamingllm", "h2o", "snapkv", "expected")
SHARES = (0.5, 0.25, 0.1)
SINKS = 4
CALIBRATION_TEXTS = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev sparse", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder in Hugging Face form")
    parser.add_argument("--data", type=Path, required=True, help="JSON lines of task lm, or gzipped")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--passkeys", type=int, default=12)
    parser.add_argument("--context-tokens", type=int, default=1536)
    parser.add_argument("--scored-tokens", type=int, default=256)
    parser.add_argument("--recent", type=int, default=64, help="last tokens that always stay")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", type=Path, default=Path("out/sparse.json"))
    return parser.parse_args()


def choices(model: Model, prompt: Prompt, statistics: list, recent: int) -> dict:
    """(method, scope, share) -> [layer, kv_head, token]."""
    layers = list(zip(prompt.queries, prompt.keys, prompt.values))
    found = {
        "streamingllm": torch.arange(prompt.tokens).float().expand(
            len(layers), len(prompt.keys[0]), -1),
        "h2o": torch.stack([scores.mass(q, k) for q, k, _ in layers]),
        "snapkv": torch.stack([scores.pooled_mass(q, k) for q, k, _ in layers]),
        "expected": torch.stack([scores.expected(of_layer, k, v, model.theta)
                                 for of_layer, (_, k, v) in zip(statistics, layers)]),
    }
    return {(method, scope, share):
            scores.keep(found[method], share, scope == "request", SINKS, recent)
            for method in METHODS for scope in ("head", "request") for share in SHARES
            if method != "streamingllm" or scope == "request"}


def everything(prompt: Prompt) -> torch.Tensor:
    return torch.ones(len(prompt.keys), len(prompt.keys[0]), prompt.tokens, dtype=torch.bool)


class Evaluation:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.model = Model.load(options.model)
        self.sums: dict = defaultdict(lambda: defaultdict(float))
        needed = options.context_tokens + options.scored_tokens
        texts = [self.model.tokens_of(text) for text in read_texts(options.data)]
        self.texts = [ids for ids in texts if len(ids) >= needed]
        wanted = options.prompts + CALIBRATION_TEXTS
        if len(self.texts) < wanted:
            raise SystemExit(f"{options.data}: {len(self.texts)} texts of {needed} tokens or more; "
                             f"{wanted} are needed")
        last = [self.model.prefill(ids[:options.context_tokens])
                for ids in self.texts[-CALIBRATION_TEXTS:]]
        self.statistics = self.model.query_statistics(last)

    def masks(self, prompt: Prompt) -> list:
        chosen = choices(self.model, prompt, self.statistics, self.options.recent)
        return [(("none", "request", 1.0), everything(prompt)), *chosen.items()]

    def score_text(self, ids: torch.Tensor) -> None:
        context = self.options.context_tokens
        prompt = self.model.prefill(ids[:context])
        following = ids[context:context + self.options.scored_tokens]
        reference = self.model.log_probabilities(prompt, everything(prompt), following)
        for row, kept in self.masks(prompt):
            found = self.model.log_probabilities(prompt, kept, following)
            sums = self.sums[row]
            sums["kl"] += (reference.exp() * (reference - found)).sum(-1).mean().item()
            sums["top1"] += (reference.argmax(-1) == found.argmax(-1)).float().mean().item()
            sums["kept"] += kept.float().mean().item()
            sums["texts"] += 1

    def score_passkey(self, number: int) -> None:
        body = self.texts[number % self.options.prompts]
        case = passkey(body, self.model.tokens_of, self.options.context_tokens, number)
        prompt = self.model.prefill(case.prompt)
        asked = torch.cat([case.question, case.answer])
        for row, kept in self.masks(prompt):
            likeliest = self.model.log_probabilities(prompt, kept, asked).argmax(-1)
            right = torch.equal(likeliest[len(case.question) - 1:-1], case.answer)
            self.sums[row]["passkey"] += right
            self.sums[row]["passkeys"] += 1

    def rows(self) -> list[dict]:
        return [{"method": method, "scope": scope, "keep": share,
                 "ratio": sums["texts"] / sums["kept"], "kl": sums["kl"] / sums["texts"],
                 "top1": sums["top1"] / sums["texts"],
                 "passkey": sums["passkey"] / max(sums["passkeys"], 1), "n": int(sums["texts"]),
                 "passkeys": int(sums["passkeys"])}
                for (method, scope, share), sums in self.sums.items()]


def table(rows: list[dict]) -> str:
    lines = ["| method | scope | keep | ratio | KL | top-1 | passkey |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {row['method']} | {row['scope']} | {row['keep']:g} | {row['ratio']:.2f} | "
              f"{row['kl']:.4f} | {row['top1']:.3f} | {row['passkey']:.0%} |" for row in rows]
    return "\n".join(lines)


@torch.no_grad()
def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    began = time.monotonic()
    evaluation = Evaluation(options)
    for i in range(options.prompts):
        evaluation.score_text(evaluation.texts[i])
        print(f"text {i + 1}/{options.prompts}, {time.monotonic() - began:.0f} s", flush=True)
    for i in range(options.passkeys):
        evaluation.score_passkey(i)
        print(f"passkey {i + 1}/{options.passkeys}, {time.monotonic() - began:.0f} s", flush=True)
    rows = evaluation.rows()
    options.o.parent.mkdir(parents=True, exist_ok=True)
    options.o.write_text(json.dumps({
        "model": options.model.name, "data": options.data.name,
        "context_tokens": options.context_tokens, "scored_tokens": options.scored_tokens,
        "sinks": SINKS, "recent": options.recent, "seconds": time.monotonic() - began,
        "rows": rows}, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
