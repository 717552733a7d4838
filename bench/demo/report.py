"""out/report.html: one self-contained page; the plots' library is inlined."""

import html
import json
from pathlib import Path

from demo import plan, results, summary

HERE = Path(__file__).resolve().parent


def plotly_source() -> str:
    import plotly
    return (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_text()


def seconds(milliseconds: float) -> str:
    value = milliseconds / 1e3
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def headline(result: dict) -> tuple[str, str]:
    """The one sentence to remember, and what it rests on."""
    model = next(iter(result["floor"]))
    link = summary.GOAL_LINK_MBPS
    none = results.find(result["rows"], model, link, "none")
    best = summary.best_lossy(result, model, link)
    if not none or not best:
        return "KVServe demo", ""
    cost = results.cost_ratio(result, best)
    costs = f"the transfer costs {cost:.0%} of what it costs uncompressed; "
    if not summary.believable(cost):
        costs = ""
    first = (f"On a {link} Mbit/s link the answer arrives after {seconds(best['jct_ms'])} instead "
             f"of {seconds(none['jct_ms'])}.")
    second = (f"{model}, {best['prompt_tokens']}-token prompts, {best['output_tokens']} tokens of "
              f"answer. The KV cache shrinks {best['compression_ratio']:.1f} times; {costs}the "
              f"next-token distribution moves by KL {best['kl']:.4f}.")
    return first, second


def warnings(result: dict) -> list[str]:
    found = list(result.get("warnings", []))
    for r in result["rows"]:
        if r["recomputed"]:
            found.append(f"{r['model']}, {plan.link_name(r['link_mbps'])}, {r['policy']}: "
                         f"{r['recomputed']} of {r['n']} requests were recomputed by the decode "
                         f"node ({r['reason']}); this row does not measure the transfer.")
    return found


def short(policy: str) -> str:
    """`static:hadamard|uniform:k_levels=16,v_levels=8|rans` as `K16 V8`."""
    levels = dict(part.split("=") for part in policy.replace("|", ":").replace(",", ":").split(":")
                  if "=" in part)
    if "k_levels" in levels and "v_levels" in levels:
        return f"K{levels['k_levels']} V{levels['v_levels']}"
    return policy.removeprefix("static:")


def table_rows(result: dict) -> str:
    lines = []
    for r in result["rows"]:
        recommended = result["recommended"][r["model"]].get(f"{r['link_mbps']:g}", "")
        cost = results.cost_ratio(result, r)
        chosen = plan.policy(recommended) == r["policy"]
        agreement = r["token_agreement"]
        cells = [
            r["model"], plan.link_name(r["link_mbps"]),
            html.escape(short(r["policy"])) + (" <b title='recommended'>&#9733;</b>" if chosen else ""),
            str(r["n"]), f"{r['ttft_ms'] / 1e3:.2f}", f"{r['jct_ms'] / 1e3:.2f}",
            "" if cost is None else f"{cost:.2f}", f"{r['compression_ratio']:.2f}",
            f"{r['wire_bytes'] / 1e6:.2f}", f"{r['kl']:.5f}",
            "" if agreement is None else f"{agreement:.0%}"]
        kind = " class='chosen'" if chosen else ""
        lines.append(f"<tr{kind}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "\n".join(lines)


def spelled(profile: str) -> str:
    if profile == plan.CALIBRATED:
        return "transform coding with what <code>./dev artefact</code> learnt of the model"
    return f"<code>{html.escape(profile)}</code>"


def calibrated_costs(result: dict) -> list[str]:
    """A sentence per model and slow link: calibrated against the best without calibration."""
    found = []
    for model in result["floor"]:
        for mbps in summary.CALIBRATED_LINKS_MBPS:
            pair = summary.calibrated_pair(result, model, mbps)
            if pair:
                ours, rival = [f"{html.escape(short(r['policy']))} {results.cost_ratio(result, r):.1%} "
                               f"(KL {r['kl']:.4f}, first token after {seconds(r['ttft_ms'])})"
                               for r in pair]
                found.append(f"<p>{html.escape(model)} at {plan.link_name(mbps)}, of what none costs: "
                             f"{ours}; the best profile without calibration, {rival}.</p>")
    return found


def checks(result: dict) -> str:
    items = calibrated_costs(result)
    for model, paired in result["interleaved"].items():
        if paired:
            low, high = paired["ci95_ms"]
            items.append(f"<p>{html.escape(model)} at {plan.link_name(plan.PAIRED_LINK_MBPS)}: the "
                         f"recommended profile ({html.escape(short(paired['profile']))}) against "
                         f"none in {paired['pairs']} interleaved pairs: {paired['mean_ms']:+.0f} ms "
                         f"(95 % interval {low:+.0f} to {high:+.0f} ms).</p>")
    return "\n".join(items)


def plot_data(result: dict) -> dict:
    rows = [{**r, "label": short(r["policy"]), "link": plan.link_name(r["link_mbps"]),
             "cost": results.cost_ratio(result, r)} for r in result["rows"]]
    return {"rows": rows, "floor": result["floor"],
            "links": [plan.link_name(mbps) for mbps in reversed(plan.LINKS_MBPS)],
            "models": list(result["floor"])}


def page(result: dict) -> str:
    first, second = headline(result)
    machine = result["machine"]
    notes = "".join(f"<p class='warning'>{html.escape(text)}</p>" for text in warnings(result))
    fields = {
        "HEADLINE": html.escape(first), "SUBLINE": html.escape(second), "WARNINGS": notes,
        "TABLE": table_rows(result), "CHECKS": checks(result),
        "LINK": html.escape(result["link"]), "VERSION": html.escape(result["kvserve_version"]),
        "DATE": result["date"], "MINUTES": f"{result['seconds'] / 60:.0f}",
        "MACHINE": html.escape(f"{machine.get('cpu', '')}, {machine.get('cores', '?')} cores"),
        "LEGEND": "; ".join(f"<b>{html.escape(short(plan.policy(p)))}</b> = {spelled(p)}"
                            for p in plan.PROFILES if p not in ("none", "lossless")),
        "PROMPT": str(plan.PROMPT_TOKENS), "OUTPUT": str(plan.OUTPUT_TOKENS),
        # "</" must not end the script element early.
        "DATA": json.dumps(plot_data(result)).replace("</", "<\\/"),
        "PLOTS": (HERE / "plots.js").read_text(), "STYLE": (HERE / "page.css").read_text(),
        "PLOTLY": plotly_source()}
    text = (HERE / "page.html").read_text()
    for name, value in fields.items():
        text = text.replace(f"@@{name}@@", value)
    return text
