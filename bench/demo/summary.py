"""The table and the checks that the demo prints at its end."""

from demo import choice, plan, results

# Share of the cost of none that is left at 20 Mbit/s: what the project promises.
GOAL_LINK_MBPS = 20
GOAL_LOSSY = 0.25
GOAL_LOSSLESS = {"bf16": 0.75, "f16": 0.92}
CALIBRATED_LINKS_MBPS = (20, 5)


def print_table(result: dict) -> None:
    width = max(len(r["policy"]) for r in result["rows"])
    print(f"\n{'model':<14}{'link':>13}  {'policy':<{width}}{'n':>4}{'TTFT s':>8}{'JCT s':>8}"
          f"{'cost':>7}{'ratio':>7}{'wire MB':>9}{'KL':>9}{'tokens':>8}")
    for r in result["rows"]:
        cost = results.cost_ratio(result, r)
        share = r["token_agreement"]
        print(f"{r['model']:<14}{plan.link_name(r['link_mbps']):>13}  {r['policy']:<{width}}{r['n']:>4}"
              f"{r['ttft_ms'] / 1e3:>8.2f}{r['jct_ms'] / 1e3:>8.2f}"
              f"{'' if cost is None else f'{cost:.2f}':>7}{r['compression_ratio']:>7.2f}"
              f"{r['wire_bytes'] / 1e6:>9.2f}{r['kl']:>9.5f}"
              f"{'' if share is None else f'{share:.0%}':>8}"
              f"{'  recomputed ' + str(r['recomputed']) if r['recomputed'] else ''}")
    print("cost: share of what none costs on that link, above none on the unshaped link\n")


def best_lossy(result: dict, model: str, mbps: float) -> dict | None:
    fits = [r for r in result["rows"] if (r["model"], r["link_mbps"]) == (model, mbps)
            and r["policy"].startswith("static:") and r["kl"] <= choice.KL_LIMIT]
    return min(fits, key=lambda r: r["jct_ms"], default=None)


def calibrated_pair(result: dict, model: str, mbps: float) -> tuple[dict, dict] | None:
    """The rows of calibrated and of the best profile without calibration, where both were measured
    and cost something."""
    calibrated = results.find(result["rows"], model, mbps, plan.policy(plan.CALIBRATED))
    others = [r for r in result["rows"] if r is not calibrated]
    rival = best_lossy({**result, "rows": others}, model, mbps)
    pair = (calibrated, rival)
    believed = all(r and believable(results.cost_ratio(result, r)) for r in pair)
    return pair if believed else None


def check(met: bool, text: str) -> None:
    print(f"{'ok  ' if met else 'MISS'} {text}")


def believable(cost: float | None) -> bool:
    """A transfer cannot cost less than nothing: then the floor was measured on a busy machine."""
    return cost is not None and cost > 0


def share(cost: float | None) -> str:
    return "an unknown share" if cost is None else f"{cost:.3f}"


def check_calibrated(result: dict, model: str, mbps: float) -> None:
    pair = calibrated_pair(result, model, mbps)
    if not pair:
        return
    (ours, rival), costs = pair, [results.cost_ratio(result, r) for r in pair]
    check(costs[0] < costs[1] and ours["kl"] <= choice.KL_LIMIT,
          f"{model}, {plan.link_name(mbps)}: {plan.CALIBRATED} costs {share(costs[0])} of none, KL "
          f"{ours['kl']:.5f}; the best without calibration, {rival['policy']}, {share(costs[1])}, KL "
          f"{rival['kl']:.5f}")


def check_model(result: dict, model: str) -> None:
    name = plan.link_name(GOAL_LINK_MBPS)
    lossy = best_lossy(result, model, GOAL_LINK_MBPS)
    if lossy:
        cost = results.cost_ratio(result, lossy)
        check(believable(cost) and cost <= GOAL_LOSSY,
              f"{model}, {name}: {lossy['policy']} costs {share(cost)} of none (goal {GOAL_LOSSY}), "
              f"KL {lossy['kl']:.5f}")
    lossless = results.find(result["rows"], model, GOAL_LINK_MBPS, "lossless")
    if lossless:
        cost = results.cost_ratio(result, lossless)
        goal = GOAL_LOSSLESS.get(lossless["kv_dtype"], GOAL_LOSSLESS["f16"])
        check(believable(cost) and cost <= goal,
              f"{model}, {name}: lossless costs {share(cost)} of none (goal {goal} on "
              f"{lossless['kv_dtype'] or '16-bit'} KV)")
    for mbps in CALIBRATED_LINKS_MBPS:
        check_calibrated(result, model, mbps)
    recommended = result["recommended"][model].get(f"{GOAL_LINK_MBPS}")
    check(recommended != "none", f"{model}, {name}: recommended is {recommended}")
    paired = result["interleaved"][model]
    if paired:
        low, high = paired["ci95_ms"]
        check(paired["no_slower"],
              f"{model}, {plan.link_name(plan.PAIRED_LINK_MBPS)}: recommended ({paired['profile']}) "
              f"against none, {paired['pairs']} interleaved pairs: {paired['mean_ms']:+.0f} ms "
              f"[{low:+.0f}, {high:+.0f}]")


def print_checks(result: dict) -> None:
    for model in result["floor"]:
        check_model(result, model)
