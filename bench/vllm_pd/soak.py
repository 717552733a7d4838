"""./dev vllm-test soak: many requests at once while clients hang up, the KV link is cut and servers
are killed and restarted. Every request must end, with right tokens or none, and all blocks must
come back. Writes out/vllm-soak.json."""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import random
import threading
import time

from demo import plan
from vllm_pd import policies, reference
from vllm_pd.client import Aborted, RequestFailed
from vllm_pd.cluster import Cluster
from vllm_pd.measure import unique_salt
from vllm_pd.network import make_network
from vllm_pd.servers import ServerFailed

END_SECONDS = 240  # a request that takes longer counts as hanging
FAULT_KINDS = ("cut", "kill prefill", "cut", "kill decode")
CUT_SECONDS = 3.0


@dataclasses.dataclass
class Outcome:
    """How one request ended: right, wrong, aborted, failed or hung."""

    number: int
    prompt_tokens: int
    end: str
    seconds: float
    why: str = ""


class Soak:
    def __init__(self, cluster: Cluster, policy, prompts, expected, options: argparse.Namespace):
        self.cluster, self.policy, self.options = cluster, policy, options
        self.prompts, self.expected = prompts, expected
        self.random = random.Random(options.seed)
        # Which requests hang up and after how many tokens, decided beforehand: runs are alike.
        self.aborts = {number: self.random.choice((0, 1, 5)) for number in range(options.requests)
                       if self.random.random() < options.abort_share}
        self.serving = threading.Event()
        self.serving.set()
        self.done = threading.Condition()
        self.outcomes: list[Outcome] = []
        self.faults: list[str] = []

    def run(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(self.options.concurrent) as pool:
            asked = [pool.submit(self.request, number) for number in range(self.options.requests)]
            try:
                self.inject_faults()
            except BaseException:
                self.serving.set()  # else requests that wait for a restart would wait for ever
                pool.shutdown(cancel_futures=True)
                raise
            concurrent.futures.wait(asked)
        for future in asked:
            future.result()

    # ---- requests ----

    def request(self, number: int) -> None:
        self.serving.wait()
        index = number % len(self.prompts)
        started = time.monotonic()
        end, why = self.one(index, self.aborts.get(number))
        seconds = time.monotonic() - started
        if end == "failed" and seconds >= END_SECONDS:
            end = "hung"
        with self.done:
            self.outcomes.append(
                Outcome(number, len(self.prompts[index]), end, round(seconds, 3), why))
            self.done.notify_all()

    def one(self, index: int, abort_after: int | None) -> tuple[str, str]:
        try:
            answer = self.cluster.client.complete(
                self.prompts[index], reference.OUTPUT_TOKENS, self.policy.request | unique_salt(),
                abort_after_tokens=abort_after, seconds=END_SECONDS)
        except Aborted:
            return "aborted", ""
        except RequestFailed as error:
            return "failed", str(error)
        if self.policy.exact and answer.tokens != self.expected[index]:
            return "wrong", f"{answer.tokens}, not {self.expected[index]}"
        return "right", ""

    # ---- faults ----

    def inject_faults(self) -> None:
        """One fault after each share of the requests; new requests wait while a server restarts."""
        kinds = [kind for kind in FAULT_KINDS if kind != "cut" or self.cluster.network.isolated]
        share = self.options.requests // (self.options.faults + 1)
        for number in range(self.options.faults):
            with self.done:
                self.done.wait_for(lambda: len(self.outcomes) >= share * (number + 1))
            kind = kinds[number % len(kinds)]
            print(f"    after {len(self.outcomes)} requests: {kind}", flush=True)
            self.faults.append(kind)
            if kind == "cut":
                self.cut()
            else:
                self.serving.clear()
                took = self.cluster.restart(kind.removeprefix("kill "))
                self.serving.set()
                print(f"    ready again after {took:.0f} s", flush=True)

    def cut(self) -> None:
        self.cluster.network.set_cut(True)
        time.sleep(CUT_SECONDS)
        self.cluster.network.set_cut(False)

    # ---- the verdict ----

    def verdict(self) -> dict:
        used = self.cluster.wait_idle(120)
        last = [self.one(index, None) for index in range(len(self.prompts))[-4:]]
        alive = {name: server.alive() and server.client.healthy()
                 for name, server in self.cluster.servers.items()}
        ends = collections.Counter(outcome.end for outcome in self.outcomes)
        reasons = collections.Counter(o.why for o in self.outcomes if o.end == "failed")
        slowest = max(self.outcomes, key=lambda outcome: outcome.seconds)
        return {
            "policy": self.policy.name, "requests": self.options.requests, "ends": dict(ends),
            "failure_reasons": dict(reasons), "faults": self.faults,
            "slowest_s": slowest.seconds, "slowest_end": slowest.end,
            "blocks_used_at_end": used, "alive": alive, "after": [end for end, _ in last],
            "wrong": [dataclasses.asdict(o) for o in self.outcomes if o.end in ("wrong", "hung")],
            "passed": (sum(ends.values()) == self.options.requests and not ends["wrong"]
                       and not ends["hung"] and not any(used.values()) and all(alive.values())
                       and all(end == "right" for end, _ in last)),
            "outcomes": [dataclasses.asdict(outcome) for outcome in self.outcomes]}


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev vllm-test soak", description=__doc__)
    parser.add_argument("--policy", action="append", metavar="NAME",
                        help="default: lossless")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--concurrent", type=int, default=8)
    parser.add_argument("--abort-share", type=float, default=0.15)
    parser.add_argument("--faults", type=int, default=8, help="cuts and kills")
    parser.add_argument("--link", type=float, default=200, metavar="MBPS",
                        help="slow enough that faults meet transfers")
    parser.add_argument("--failure-policy", choices=("fail", "recompute"), default="fail",
                        help="vLLM's kv_load_failure_policy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loopback", action="store_true", help="without cuts and shaping")
    return parser.parse_args(argv)


def print_verdict(found: dict) -> None:
    print(f"{'ok  ' if found['passed'] else 'MISS'} {found['policy']}: {found['requests']} requests"
          f" ended {found['ends']}, slowest {found['slowest_s']:.1f} s ({found['slowest_end']}); "
          f"blocks in use {found['blocks_used_at_end']}; alive {found['alive']}; afterwards "
          f"{found['after']}")
    for why, count in found["failure_reasons"].items():
        print(f"     {count} failed: {why[:160]}")


def soaked(argv: list[str]) -> int:
    options = arguments(argv)
    network = make_network(options.loopback)
    verdicts = []
    try:
        prompts = reference.prompt_set(40)
        expected = reference.tokens(network, prompts)
        for policy in policies.named(options.policy or ["lossless"]):
            print(f"==> soak: {policy.name}", flush=True)
            network.set_rate(options.link)
            connector = dataclasses.replace(policy.connector, failure_policy=options.failure_policy)
            with Cluster(network, connector, reference.DTYPE, name="soak") as cluster:
                soak = Soak(cluster, policy, prompts, expected, options)
                try:
                    soak.run()
                    verdicts.append(soak.verdict())
                except ServerFailed as error:
                    verdicts.append({"policy": policy.name, "passed": False, "why": str(error)})
                    print(f"MISS {policy.name}: {error}")
                    continue
            print_verdict(verdicts[-1])
    finally:
        network.close()
    plan.OUT.mkdir(parents=True, exist_ok=True)
    target = plan.OUT / "vllm-soak.json"
    target.write_text(json.dumps({"dtype": reference.DTYPE, "runs": verdicts}) + "\n")
    print(f"wrote {target}")
    return 0 if all(found["passed"] for found in verdicts) else 1
