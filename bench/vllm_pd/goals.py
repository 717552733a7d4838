"""What the measurements must show, each as one line: ok or MISS."""

import math
import statistics

from demo import plan
from demo.choice import KL_LIMIT
from demo.results import T_975
from demo.summary import check
from vllm_pd.measure import Sample
from vllm_pd.results import cost

GOAL_LINK_MBPS = 20
GOAL_LOSSY_COST = 0.25


def slower_ms(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """Difference of the means and half of its 95 % interval (unequal variances, the smaller n)."""
    difference = statistics.fmean(ours) - statistics.fmean(theirs)
    spread = math.sqrt(sum(statistics.variance(v) / len(v) for v in (ours, theirs)))
    return difference, T_975.get(min(len(ours), len(theirs)) - 1, 1.96) * spread


def check_overhead(samples: list[Sample]) -> None:
    """Ours without compression is not slower than NixlConnector beyond the noise."""
    groups: dict[tuple, dict[str, list[float]]] = {}
    for s in samples:
        by_policy = groups.setdefault((s.prompt_tokens, s.link_mbps), {})
        by_policy.setdefault(s.policy, []).append(s.answer.ttft_ms)
    for (tokens, mbps), times in groups.items():
        ours, theirs = times.get("none", []), times.get("nixl", [])
        if min(len(ours), len(theirs)) < 2:
            continue
        difference, half = slower_ms(ours, theirs)
        check(difference - half <= 0,
              f"{tokens} tokens, {plan.link_name(mbps)}: TTFT of none against nixl "
              f"{difference:+.0f} ms, 95 % within {half:.0f} ms")


def check_lossy(result: dict) -> None:
    """On a slow link the best profile of good quality costs a quarter of none."""
    for model in result["floor"]:
        fits = [(share, r) for r in result["rows"]
                if (r["model"], r["link_mbps"]) == (model, GOAL_LINK_MBPS)
                and r["policy"].startswith("static:") and (r["kl"] is None or r["kl"] <= KL_LIMIT)
                and (share := cost(result, r)) is not None]
        if fits:
            share, best = min(fits, key=lambda fit: fit[0])
            check(share <= GOAL_LOSSY_COST,
                  f"{best['prompt_tokens']} tokens, {plan.link_name(GOAL_LINK_MBPS)}: "
                  f"{best['policy']} costs {share:.2f} of none (goal {GOAL_LOSSY_COST})")
