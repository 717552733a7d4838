"""From samples to out/demo.json: means per model, link and policy; costs; the printed checks."""

import math
import statistics

from demo import plan
from demo.client import STAGES
from demo.measure import ModelRun, Sample

# Student's t, 97.5 %, by degrees of freedom; beyond the table the normal value serves.
T_975 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23,
         11: 2.20, 12: 2.18, 13: 2.16, 14: 2.14, 15: 2.13, 16: 2.12, 17: 2.11, 18: 2.10, 19: 2.09}


def p95(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(0.95 * len(ordered)) - 1)]


def agreement(samples: list[Sample], reference: dict[int, list[int]]) -> float | None:
    """Share of output tokens equal, position by position, to those of none on the same prompt."""
    shares = []
    for sample in samples:
        wanted, got = reference.get(sample.prompt), sample.answer.tokens
        if wanted:
            shares.append(sum(a == b for a, b in zip(wanted, got)) / max(len(wanted), len(got)))
    return statistics.fmean(shares) if shares else None


def row(run: ModelRun, mbps: float, profile: str, samples: list[Sample],
        reference: dict[int, list[int]]) -> dict:
    answers = [sample.answer for sample in samples]

    def mean(get) -> float:
        return statistics.fmean(get(answer) for answer in answers)
    return {
        "scenario": "pd", "model": run.name, "kv_dtype": run.kv_dtype, "link_mbps": mbps,
        "policy": plan.policy(profile), "n": len(answers), "prompt_tokens": plan.PROMPT_TOKENS,
        "output_tokens": round(mean(lambda a: len(a.tokens))),
        "ttft_ms": mean(lambda a: a.ttft_ms), "jct_ms": mean(lambda a: a.jct_ms),
        "ttft_p95_ms": p95([a.ttft_ms for a in answers]),
        "jct_p95_ms": p95([a.jct_ms for a in answers]),
        "stages_ms": {stage: mean(lambda a: a.stages_ms[stage]) for stage in STAGES},
        "wire_bytes": round(mean(lambda a: a.wire_bytes)),
        "raw_bytes": round(mean(lambda a: a.raw_bytes)),
        "compression_ratio": mean(lambda a: a.compression_ratio),
        "kl": run.kl[profile], "token_agreement": agreement(samples, reference),
        "recomputed": sum(answer.recomputed_tokens > 0 for answer in answers),
        "reason": answers[-1].reason,
    }


def rows(run: ModelRun) -> list[dict]:
    reference = {}
    for sample in run.samples:
        if sample.profile == "none":
            reference.setdefault(sample.prompt, sample.answer.tokens)
    groups: dict[tuple, list[Sample]] = {}
    for sample in run.samples:
        groups.setdefault((sample.link_mbps, sample.profile), []).append(sample)
    ordered = sorted(groups, key=lambda key: (key[0] or math.inf, plan.PROFILES.index(key[1])))
    return [row(run, mbps, profile, groups[mbps, profile], reference) for mbps, profile in ordered]


def find(all_rows: list[dict], model: str, mbps: float, policy: str) -> dict | None:
    return next((r for r in all_rows if (r["model"], r["link_mbps"], r["policy"])
                 == (model, mbps, policy)), None)


def paired_difference(run: ModelRun) -> dict | None:
    """JCT of the recommended profile minus that of none, over the interleaved pairs."""
    paired = [sample for sample in run.samples if sample.paired]
    halves: dict[int, list[Sample]] = {}
    for sample in paired:
        halves.setdefault(sample.prompt, []).append(sample)
    recommended = run.recommended.get(plan.PAIRED_LINK_MBPS)
    differences = []
    for index, pair in sorted(halves.items()):
        if len(pair) == 2:
            none, other = pair if index % 2 == 0 else pair[::-1]
            differences.append(other.answer.jct_ms - none.answer.jct_ms)
    if len(differences) < 2:
        return None
    half = (T_975.get(len(differences) - 1, 1.96) * statistics.stdev(differences)
            / math.sqrt(len(differences)))
    mean = statistics.fmean(differences)
    return {"profile": recommended, "pairs": len(differences), "mean_ms": mean,
            "ci95_ms": [mean - half, mean + half], "no_slower": mean - half <= 0}


def finite(numbers: dict[str, float]) -> dict[str, float | None]:
    """JSON has no infinity: a stage that took no time has no speed."""
    return {key: value if math.isfinite(value) else None for key, value in numbers.items()}


def document(runs: list[ModelRun], facts: dict) -> dict:
    all_rows = [r for run in runs for r in rows(run)]
    floors = {run.name: find(all_rows, run.name, 0, "none") for run in runs}
    return {
        **facts,
        "floor": {name: {"jct_ms": f["jct_ms"], "ttft_ms": f["ttft_ms"]}
                  for name, f in floors.items() if f},
        "recommended": {run.name: {f"{mbps:g}": profile for mbps, profile in run.recommended.items()}
                        for run in runs},
        "measured": {run.name: {
            "link_bytes_per_s": {f"{mbps:g}": rate for mbps, rate in run.link_bytes_per_s.items()},
            "profiles": {profile: finite(vars(speed)) for profile, speed in run.speeds.items()}}
            for run in runs},
        "interleaved": {run.name: paired_difference(run) for run in runs},
        "rows": all_rows,
    }


def cost_ratio(result: dict, r: dict) -> float | None:
    """(JCT - floor) / (JCT of none on the same link - floor)."""
    none = find(result["rows"], r["model"], r["link_mbps"], "none")
    floor = result["floor"].get(r["model"])
    if none is None or floor is None or r["link_mbps"] == 0:
        return None
    cost = none["jct_ms"] - floor["jct_ms"]
    return (r["jct_ms"] - floor["jct_ms"]) / cost if cost > 0 else None
