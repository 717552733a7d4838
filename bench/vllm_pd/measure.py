"""TTFT and JCT of each policy over links of several speeds, one request at a time."""

import dataclasses
import itertools
import time

from demo import plan
from vllm_pd import prompts
from vllm_pd.client import Answer, RequestFailed
from vllm_pd.cluster import Cluster
from vllm_pd.policies import Policy
from vllm_pd.servers import ServerFailed

WARM_UP_TOKENS = 300


@dataclasses.dataclass(frozen=True)
class Plan:
    policies: list[Policy]
    links_mbps: list[float]  # 0: unshaped
    prompt_tokens: list[int]
    repeats: int
    rounds: int  # each starts the servers of every policy anew: slow drifts hit all alike
    output_tokens: int = 32
    dtype: str = "bfloat16"


@dataclasses.dataclass
class Sample:
    policy: str
    link_mbps: float
    prompt_tokens: int
    prompt: int
    wire_bytes: int  # on the KV link, headers included
    answer: Answer


salts = itertools.count()


def unique_salt() -> dict:
    """Keeps a request away from the prefix caches, which know its prompt from another policy."""
    return {"cache_salt": f"{time.time_ns()}-{next(salts)}"}


def groups(policies: list[Policy]) -> list[list[Policy]]:
    """Policies that share servers, in order of first appearance."""
    found: dict = {}
    for policy in policies:
        found.setdefault(policy.connector, []).append(policy)
    return list(found.values())


class Runner:
    def __init__(self, network, the_plan: Plan):
        self.network, self.plan = network, the_plan
        self.samples: list[Sample] = []
        self.reports: dict[tuple[str, int], dict] = {}  # by policy and prompt tokens
        self.failures: list[str] = []

    def run(self) -> None:
        for _ in range(self.plan.rounds):
            for policies in groups(self.plan.policies):
                self.network.set_rate(0)
                try:
                    self.measure_group(policies)
                except (ServerFailed, RequestFailed) as error:
                    self.failed(f"{policies[0].name}: {error}")

    def failed(self, what: str) -> None:
        self.failures.append(what)
        print(f"    FAILED {what}", flush=True)

    def measure_group(self, policies: list[Policy]) -> None:
        names = ", ".join(policy.name for policy in policies)
        print(f"==> {names}", flush=True)
        with Cluster(self.network, policies[0].connector, self.plan.dtype) as cluster:
            print(f"    ready after {cluster.ready_s:.0f} s")
            for policy in policies:
                self.warm_up(cluster, policy)
            # One server sends nothing: a link more would be the same again.
            links = self.plan.links_mbps if policies[0].connector else self.plan.links_mbps[:1]
            for mbps in links:
                self.network.set_rate(mbps)
                for tokens, repeat, policy in itertools.product(
                        self.plan.prompt_tokens, range(self.plan.repeats), policies):
                    self.measure(cluster, policy, mbps, tokens, repeat)

    def warm_up(self, cluster: Cluster, policy: Policy) -> None:
        """Also the connector's report for each length, which a streamed answer does not bring."""
        for tokens in (WARM_UP_TOKENS, *self.plan.prompt_tokens):
            prompt = prompts.of_length(tokens, 1)[0]
            report = cluster.client.reported(prompt, 4, policy.request | unique_salt()).report
            if policy.profile and (report.get("profile") != policy.reported_profile
                                   or report.get("error")):
                self.failed(f"{policy.name}: {report}")
            self.reports[policy.name, tokens] = report

    def measure(self, cluster: Cluster, policy: Policy, mbps: float, tokens: int,
                index: int) -> None:
        prompt = prompts.of_length(tokens, self.plan.repeats)[index]
        before = self.network.received_bytes("decode")
        try:
            answer = cluster.client.complete(prompt, self.plan.output_tokens,
                                             policy.request | unique_salt())
        except RequestFailed as error:
            self.failed(f"{policy.name}, {plan.link_name(mbps)}, {tokens} tokens: {error}")
            cluster.check()
            return
        wire_bytes = 0
        if before is not None and policy.connector is not None:
            wire_bytes = self.network.received_bytes("decode") - before
        self.samples.append(Sample(policy.name, mbps, tokens, index, wire_bytes, answer))
        print(f"    {plan.link_name(mbps):>11}  {policy.name:<52}{tokens:>5} tokens  TTFT "
              f"{answer.ttft_ms / 1e3:6.2f} s  JCT {answer.jct_ms / 1e3:6.2f} s  "
              f"{wire_bytes / 1e6:6.2f} MB", flush=True)
