"""From samples to out/vllm.json, in the form of out/demo.json, and its table."""

import json
import statistics

from demo import plan
from demo.client import STAGES
from demo.results import find, p95
from vllm_pd.measure import Plan, Sample
from vllm_pd.servers import MODEL

NAME = "smollm2-135m"
DTYPES = {"bfloat16": ("bf16", 2), "float32": ("f32", 4)}


def kv_bytes_per_token(dtype: str) -> int:
    config = json.loads((MODEL / "config.json").read_text())
    values = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    return values * DTYPES[dtype][1]


def model_name(tokens: int, the_plan: Plan) -> str:
    """One prompt length per model: the longest has the plain name."""
    return NAME if tokens == max(the_plan.prompt_tokens) else f"{NAME}/{tokens}"


def share_equal(wanted: list[int], got: list[int]) -> float:
    """Of the tokens, position by position."""
    return sum(a == b for a, b in zip(wanted, got)) / max(len(wanted), len(got), 1)


def agreement(samples: list[Sample], reference: dict) -> float | None:
    """Mean share of tokens equal to the reference's on the same prompt."""
    shares = [share_equal(reference[sample.prompt_tokens, sample.prompt], sample.answer.tokens)
              for sample in samples if (sample.prompt_tokens, sample.prompt) in reference]
    return statistics.fmean(shares) if shares else None


def stages(report: dict, rest_ms: float) -> dict[str, float | None]:
    """What a client can see and what the connector reports of the transfer; the others are null."""
    told = report.get("stages_ms", {})
    return dict.fromkeys(STAGES) | {stage: told[stage] for stage in STAGES if stage in told} | {
        "rest": rest_ms}


def row(key: tuple, samples: list[Sample], reference: dict, report: dict, the_plan: Plan) -> dict:
    policy, mbps, tokens = key
    ttft = [sample.answer.ttft_ms for sample in samples]
    jct = [sample.answer.jct_ms for sample in samples]
    raw_bytes = tokens * kv_bytes_per_token(the_plan.dtype)
    wire_bytes = round(statistics.fmean(sample.wire_bytes for sample in samples))
    return {
        "scenario": "vllm", "model": model_name(tokens, the_plan),
        "kv_dtype": DTYPES[the_plan.dtype][0], "link_mbps": mbps, "policy": policy,
        "n": len(samples), "prompt_tokens": tokens, "output_tokens": the_plan.output_tokens,
        "ttft_ms": statistics.fmean(ttft), "jct_ms": statistics.fmean(jct),
        "ttft_median_ms": statistics.median(ttft), "jct_median_ms": statistics.median(jct),
        "ttft_p95_ms": p95(ttft), "jct_p95_ms": p95(jct),
        "stages_ms": stages(report, statistics.fmean(jct) - statistics.fmean(ttft)),
        "wire_bytes": wire_bytes, "raw_bytes": raw_bytes if policy != "single" else 0,
        "compression_ratio": report.get("compression_ratio")
        or (raw_bytes / wire_bytes if wire_bytes else 1.0),
        "token_agreement": agreement(samples, reference)}


def rows(samples: list[Sample], reports: dict, the_plan: Plan) -> list[dict]:
    first = the_plan.policies[0].name
    reference = {(s.prompt_tokens, s.prompt): s.answer.tokens for s in samples if s.policy == first}
    grouped: dict[tuple, list[Sample]] = {}
    for sample in samples:
        key = (sample.policy, sample.link_mbps, sample.prompt_tokens)
        grouped.setdefault(key, []).append(sample)
    order = [policy.name for policy in the_plan.policies]
    keys = sorted(grouped, key=lambda k: (-k[2], k[1] or float("inf"), order.index(k[0])))
    return [row(key, grouped[key], reference, reports.get((key[0], key[2]), {}), the_plan)
            for key in keys]


def with_kl(all_rows: list[dict], kl: dict[str, float]) -> list[dict]:
    """`kl` by profile; a single server and NixlConnector change no bit."""
    by_policy = {"single": 0.0, "nixl": 0.0}
    by_policy |= {plan.policy(profile): value for profile, value in kl.items()}
    return [r | {"kl": by_policy.get(r["policy"]) if kl else None} for r in all_rows]


def document(samples: list[Sample], reports: dict, the_plan: Plan, facts: dict,
             kl: dict[str, float] | None = None) -> dict:
    """The floor of a model is `none` on the unshaped link, else NixlConnector's."""
    all_rows = with_kl(rows(samples, reports, the_plan), kl or {})
    floors = {}
    for tokens in the_plan.prompt_tokens:
        name = model_name(tokens, the_plan)
        if found := find(all_rows, name, 0, "none") or find(all_rows, name, 0, "nixl"):
            floors[name] = {"jct_ms": found["jct_ms"], "ttft_ms": found["ttft_ms"],
                            "policy": found["policy"]}
    return {**facts, "floor": floors, "recommended": {name: {} for name in floors},
            "rows": all_rows}


def cost(result: dict, r: dict) -> float | None:
    """TTFT over the floor as a share of what uncompressed transfer costs on that link."""
    floor = result["floor"].get(r["model"])
    if floor is None or r["link_mbps"] == 0:
        return None
    whole = find(result["rows"], r["model"], r["link_mbps"], floor["policy"])
    if whole is None or whole["ttft_ms"] <= floor["ttft_ms"]:
        return None
    return (r["ttft_ms"] - floor["ttft_ms"]) / (whole["ttft_ms"] - floor["ttft_ms"])


def known(value: float | None, style: str) -> str:
    return "" if value is None else format(value, style)


def print_table(result: dict) -> None:
    width = max((len(r["policy"]) for r in result["rows"]), default=6)
    print(f"\n{'prompt':>6}{'link':>13}  {'policy':<{width}}{'n':>4}{'TTFT s':>8}{'JCT s':>8}"
          f"{'cost':>7}{'wire MB':>9}{'ratio':>7}{'KL':>9}{'tokens':>8}")
    for r in result["rows"]:
        print(f"{r['prompt_tokens']:>6}{plan.link_name(r['link_mbps']):>13}  {r['policy']:<{width}}"
              f"{r['n']:>4}{r['ttft_median_ms'] / 1e3:>8.2f}{r['jct_median_ms'] / 1e3:>8.2f}"
              f"{known(cost(result, r), '.2f'):>7}{r['wire_bytes'] / 1e6:>9.2f}"
              f"{r['compression_ratio']:>7.2f}{known(r['kl'], '.5f'):>9}"
              f"{known(r['token_agreement'], '.0%'):>8}")
    print("medians; cost: share of what uncompressed transfer adds to TTFT on that link, over the "
          "unshaped link\n")
