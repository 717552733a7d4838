"""./dev vllm-test measure: TTFT and JCT of vLLM with prefill and decode apart, by policy and link.
Writes out/vllm.json."""

import argparse
import json
import signal
import sys
import time
from importlib import metadata
from pathlib import Path

from demo.__main__ import busy_machine, facts
from demo import plan, quality
from vllm_pd import goals, measure, policies, results, soak, tpot
from vllm_pd.network import make_network

EVALUATED_PROMPTS = 4


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev vllm-test measure", description=__doc__)
    parser.add_argument("--policy", action="append", metavar="NAME",
                        help=f"default: all; there are {', '.join(policies.POLICIES)}")
    parser.add_argument("--link", type=float, action="append", metavar="MBPS",
                        help="0: unshaped; default: 0, 1000, 100 and 20")
    parser.add_argument("--prompt-tokens", type=int, action="append", metavar="N",
                        help="default: 512 and 1000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1, help="restarts of all servers")
    parser.add_argument("--dtype", choices=results.DTYPES, default="bfloat16")
    parser.add_argument("--kl", action="store_true",
                        help="KL of each profile too, by kvserve evaluate on the same model")
    parser.add_argument("--loopback", action="store_true", help="no network namespaces: unshaped")
    parser.add_argument("--kvserve", type=Path, default=plan.KVSERVE)
    parser.add_argument("--out", type=Path, default=plan.OUT)
    return parser.parse_args(argv)


def make_plan(options: argparse.Namespace, shaped: bool) -> measure.Plan:
    links = options.link or [0, 1000, 100, 20]
    return measure.Plan(
        policies=policies.named(options.policy or list(policies.POLICIES)),
        links_mbps=links if shaped else [0], prompt_tokens=options.prompt_tokens or [512, 1000],
        repeats=options.repeats, rounds=options.rounds, dtype=options.dtype)


def profile_kl(kvserve: Path) -> dict[str, float]:
    print("==> KL of each profile", flush=True)
    measured_quality = quality.measure(kvserve, plan.MODELS[results.NAME], EVALUATED_PROMPTS)
    return {profile: found["kl"] for profile, found in measured_quality.items()}


def measured(argv: list[str]) -> int:
    options = arguments(argv)
    started = time.time()
    network = make_network(options.loopback)
    try:
        the_plan = make_plan(options, network.isolated)
        about = {**facts(options.kvserve), "link": network.describe, "warnings": busy_machine(),
                 "vllm_version": metadata.version("vllm"), "date": time.strftime("%Y-%m-%d")}
        for warning in about["warnings"]:
            print(f"WARNING: {warning}")
        runner = measure.Runner(network, the_plan)
        runner.run()
    finally:
        network.close()
    kl = profile_kl(options.kvserve) if options.kl else {}
    about |= {"seconds": round(time.time() - started), "failures": runner.failures}
    result = results.document(runner.samples, runner.reports, the_plan, about, kl)
    results.print_table(result)
    goals.check_overhead(runner.samples)
    goals.check_lossy(result)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "vllm.json").write_text(json.dumps(result, allow_nan=False) + "\n")
    print(f"wrote {options.out / 'vllm.json'}")
    return 1 if runner.failures else 0


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    verb, *argv = sys.argv[1:] or ["measure"]
    verbs = {"measure": measured, "tpot": tpot.measured, "soak": soak.soaked}
    if verb not in verbs:
        sys.exit(f'vllm_pd: no verb "{verb}"; there are {", ".join(verbs)}')
    return verbs[verb](argv)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except ValueError as error:
        sys.exit(f"dev vllm-test: {error}")
