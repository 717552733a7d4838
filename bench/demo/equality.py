"""Do prefill and decode apart give the tokens of one process? Greedy tokens of the pair with none
and lossless must equal those of a decode node alone; for lossy profiles the share of equal tokens
is reported. Writes out/equality.json."""

import argparse
import contextlib
import json
import signal
import statistics
import sys
from pathlib import Path

from demo import plan
from demo.client import RequestFailed
from demo.link import LoopbackLink
from demo.nodes import Pair


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev equality", description=__doc__)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--prompt-tokens", type=int, default=600, help="more than two chunks")
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument("--model", choices=plan.MODELS, action="append", help="default: all")
    parser.add_argument("--kvserve", type=Path, default=plan.KVSERVE)
    parser.add_argument("--out", type=Path, default=plan.OUT)
    return parser.parse_args()


def answers(options, pair: Pair, prompts, profile: str | None, label: str) -> list:
    got = []
    for number, prompt in enumerate(prompts, 1):
        pair.check()
        got.append(pair.client.complete(prompt, profile, options.output_tokens))
        if sys.stdout.isatty():
            print(f"\r    {label} {number}/{len(prompts)} ", end="", flush=True)
    return got


@contextlib.contextmanager
def serving(options, model: Path, local: bool):
    pair = Pair(options.kvserve, model, LoopbackLink(), plan.LOGS / "equality", local=local,
                artefact=plan.artefact(model))
    try:
        yield pair
    finally:
        pair.close()


def compare(name: str, profile: str, reference, got) -> dict:
    def share(wanted, tokens) -> float:
        return sum(a == b for a, b in zip(wanted, tokens)) / max(len(wanted), len(tokens), 1)
    pairs = list(zip(reference, got, strict=True))
    return {
        "model": name, "policy": plan.policy(profile), "prompts": len(pairs),
        "equal_prompts": sum(a.tokens == b.tokens for a, b in pairs),
        "token_agreement": statistics.fmean(share(a.tokens, b.tokens) for a, b in pairs),
        "compression_ratio": statistics.fmean(b.compression_ratio for b in got),
        # A recomputed answer is equal without anything having been transferred.
        "recomputed": sum(b.recomputed_tokens > 0 for b in got),
    }


def measure(options, name: str, model: Path) -> list[dict]:
    prompts = plan.prompt_tokens(model, options.prompt_tokens)[:options.prompts]
    print(f"==> {name}: {len(prompts)} prompts of {options.prompt_tokens} tokens", flush=True)
    with serving(options, model, local=True) as alone:
        reference = answers(options, alone, prompts, None, "one process")
    found = []
    with serving(options, model, local=False) as pair:
        for profile in plan.PROFILES:
            got = answers(options, pair, prompts, profile, profile)
            found.append(compare(name, profile, reference, got))
            print_row(found[-1])
    return found


def print_row(row: dict) -> None:
    print(f"    {row['policy']:<52} {row['equal_prompts']:>3}/{row['prompts']} equal, tokens "
          f"{row['token_agreement']:6.1%}, ratio {row['compression_ratio']:.2f}"
          f"{', RECOMPUTED ' + str(row['recomputed']) if row['recomputed'] else ''}", flush=True)


def holds(row: dict) -> bool:
    exact = row["policy"] not in ("none", "lossless") or row["equal_prompts"] == row["prompts"]
    return exact and row["recomputed"] == 0


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = []
    for name in options.model or plan.MODELS:
        rows += measure(options, name, plan.MODELS[name])
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / "equality.json"
    target.write_text(json.dumps({"output_tokens": options.output_tokens,
                                  "prompt_tokens": options.prompt_tokens, "rows": rows}) + "\n")
    failed = [row for row in rows if not holds(row)]
    for row in failed:
        print(f"MISS {row['model']}, {row['policy']}: {row['equal_prompts']} of {row['prompts']} "
              f"prompts equal, {row['recomputed']} recomputed")
    print(f"wrote {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except RequestFailed as error:
        sys.exit(f"a request failed: {error}")
