"""./dev vllm-test tpot: how much running decodes slow down while the KV of other requests arrives.
Writes out/vllm-tpot.json."""

import argparse
import concurrent.futures
import itertools
import json
import statistics
import threading

from demo import plan
from vllm_pd import policies, prompts
from vllm_pd.cluster import Cluster
from vllm_pd.measure import groups, unique_salt
from vllm_pd.network import make_network

RUNNING_TOKENS = 64  # the prompts of the running decodes


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev vllm-test tpot", description=__doc__)
    parser.add_argument("--policy", action="append", metavar="NAME", help="default: all but single")
    parser.add_argument("--running", type=int, default=2, help="decodes that are watched")
    parser.add_argument("--output-tokens", type=int, default=400)
    parser.add_argument("--arriving-tokens", type=int, default=1000, help="prompt of the others")
    parser.add_argument("--link", type=float, default=1000, metavar="MBPS", help="0: unshaped")
    parser.add_argument("--loopback", action="store_true")
    return parser.parse_args(argv)


def gaps_ms(answer) -> list[float]:
    """Times between tokens, the first ones left out."""
    return [later - earlier for earlier, later in itertools.pairwise(answer.token_ms[2:])]


def running(cluster: Cluster, policy, options) -> list[float]:
    """Gaps of the watched decodes."""
    starts = prompts.of_length(RUNNING_TOKENS, options.running)
    with concurrent.futures.ThreadPoolExecutor(options.running) as pool:
        answers = pool.map(lambda prompt: cluster.client.complete(
            prompt, options.output_tokens, policy.request | unique_salt()), starts)
        return [gap for answer in answers for gap in gaps_ms(answer)]


def arriving(cluster: Cluster, policy, options, stop: threading.Event) -> int:
    """One request after another until told to stop; how many came."""
    asked = prompts.of_length(options.arriving_tokens, 8)
    for number, prompt in enumerate(itertools.cycle(asked)):
        if stop.is_set():
            return number
        cluster.client.complete(prompt, 1, policy.request | unique_salt())


def figures(gaps: list[float]) -> dict:
    ordered = sorted(gaps)
    return {"n": len(gaps), "p50_ms": statistics.median(gaps),
            "p99_ms": ordered[int(0.99 * len(gaps))], "max_ms": ordered[-1]}


def measure(cluster: Cluster, policy, options) -> dict:
    alone = running(cluster, policy, options)
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        traffic = pool.submit(arriving, cluster, policy, options, stop)
        try:
            busy = running(cluster, policy, options)
        finally:
            stop.set()
        arrived = traffic.result()
    return {"policy": policy.name, "link_mbps": options.link, "arrived": arrived,
            "arriving_tokens": options.arriving_tokens, "alone": figures(alone),
            "with_traffic": figures(busy)}


def print_row(found: dict) -> None:
    alone, busy = found["alone"], found["with_traffic"]
    print(f"    {found['policy']:<52} TPOT p50 {alone['p50_ms']:6.1f} ms alone, "
          f"{busy['p50_ms']:6.1f} with traffic; p99 {alone['p99_ms']:6.1f}, "
          f"{busy['p99_ms']:6.1f} ({found['arrived']} requests came)", flush=True)


def measured(argv: list[str]) -> int:
    options = arguments(argv)
    every = [name for name in policies.POLICIES if name != "single"]
    network = make_network(options.loopback)
    found = []
    try:
        network.set_rate(options.link)
        for group in groups(policies.named(options.policy or every)):
            with Cluster(network, group[0].connector, name="tpot") as cluster:
                for policy in group:
                    warm_up = argparse.Namespace(running=1, output_tokens=8)
                    running(cluster, policy, warm_up)
                    found.append(measure(cluster, policy, options))
                    print_row(found[-1])
    finally:
        network.close()
    plan.OUT.mkdir(parents=True, exist_ok=True)
    (plan.OUT / "vllm-tpot.json").write_text(json.dumps({"runs": found}) + "\n")
    print(f"wrote {plan.OUT / 'vllm-tpot.json'}")
    return 0
