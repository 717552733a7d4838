"""Runs the plan against a pair of nodes: warm-up, recommendation, measurements, progress."""

import dataclasses
import time

from demo import choice, plan
from demo.client import Answer, RequestFailed
from demo.nodes import Pair


@dataclasses.dataclass
class Sample:
    link_mbps: float
    profile: str
    prompt: int
    paired: bool
    answer: Answer


@dataclasses.dataclass
class ModelRun:
    """All that was learned about one model."""

    name: str
    kl: dict[str, float]
    kv_dtype: str = ""
    speeds: dict[str, choice.Speed] = dataclasses.field(default_factory=dict)
    link_bytes_per_s: dict[float, float] = dataclasses.field(default_factory=dict)
    recommended: dict[float, str] = dataclasses.field(default_factory=dict)
    samples: list[Sample] = dataclasses.field(default_factory=list)
    raw_bytes: int = 0
    model_ms: float = 0.0  # a request without the transfer


class Runner:
    def __init__(self, run: ModelRun, model, link, kvserve, the_plan: plan.Plan, profiles: list[str]):
        self.run, self.model, self.link, self.kvserve = run, model, link, kvserve
        self.plan, self.profiles = the_plan, profiles
        self.prompts = plan.prompt_tokens(model)
        self.rate = None
        self.pair = None

    # ---- the pair and its link ----

    def use_link(self, mbps: float) -> None:
        if mbps == self.rate:
            return
        self.rate = mbps
        self.link.set_rate(mbps)
        if self.pair is None or self.link.paced:
            self.close()
            started = time.monotonic()
            self.pair = Pair(self.kvserve, self.model, self.link, plan.LOGS / self.run.name,
                             pace_mbps=mbps if self.link.paced else 0,
                             artefact=plan.artefact(self.model))
            print(f"    pair of {self.run.name} serves after {time.monotonic() - started:.1f} s")

    def close(self) -> None:
        if self.pair is not None:
            self.pair.close()
            self.pair = None

    def ask(self, profile: str, prompt: int) -> Answer:
        self.pair.check()
        return self.pair.client.complete(self.prompts[prompt], profile, plan.OUTPUT_TOKENS)

    # ---- warm-up ----

    def warm_up(self) -> None:
        """Speeds of the profiles on the unshaped link, then the rate of each link."""
        last = len(self.prompts) - 1  # prompts that are not measured later
        self.use_link(0)
        self.ask("none", last)
        for profile in self.profiles:
            answer = self.ask(profile, last - 1)
            self.run.speeds[profile] = choice.speed_of(answer)
            self.run.raw_bytes = answer.raw_bytes
            if profile == "none":
                self.run.model_ms = answer.jct_ms
        smallest = max(self.profiles, key=lambda p: self.run.speeds[p].compression_ratio)
        for mbps in plan.LINKS_MBPS:
            self.use_link(mbps)
            answer = self.ask(smallest if mbps else "none", last - 1)
            rate = choice.link_rate(answer)
            self.run.link_bytes_per_s[mbps] = rate
            best = choice.recommend(self.run.speeds, self.run.kl, self.run.raw_bytes, rate)
            self.run.recommended[mbps] = best
            print(f"    warm-up {plan.link_name(mbps):>11}: {rate * 8e-6:9.1f} Mbit/s measured, "
                  f"recommended {best}")

    # ---- measurements ----

    def schedule(self) -> list[tuple[float, str, int, bool]]:
        """(link, profile, prompt, paired), fast links first; repeats take different prompts."""
        items = []
        for mbps in plan.LINKS_MBPS:
            for repeat in range(self.plan.repeats[mbps]):
                items += [(mbps, profile, repeat, False) for profile in self.profiles]
            if mbps == plan.PAIRED_LINK_MBPS:
                items += self.pairs(mbps)
        return items

    def pairs(self, mbps: float) -> list[tuple[float, str, int, bool]]:
        both = ["none", self.run.recommended[mbps]]
        return [(mbps, profile, index, True) for index in range(self.plan.pairs)
                for profile in (both if index % 2 == 0 else both[::-1])]

    def expected_s(self, mbps: float, profile: str) -> float:
        rate = self.run.link_bytes_per_s[mbps]
        moving = choice.predicted_s(profile, self.run.speeds[profile], self.run.raw_bytes, rate)
        return self.run.model_ms / 1e3 + moving

    def measure(self) -> None:
        todo = self.schedule()
        left = [self.expected_s(mbps, profile) for mbps, profile, _, _ in todo]
        print(f"    {len(todo)} measurements, about {sum(left) / 60:.1f} minutes")
        for number, (mbps, profile, prompt, paired) in enumerate(todo):
            self.use_link(mbps)
            try:
                answer = self.ask(profile, prompt)
            except RequestFailed as error:
                print(f"  [{number + 1}/{len(todo)}] {profile}: failed, {error}")
                continue
            self.run.samples.append(Sample(mbps, profile, prompt, paired, answer))
            note = f"  RECOMPUTED: {answer.reason}" if answer.recomputed_tokens else ""
            print(f"  [{number + 1}/{len(todo)}] {plan.link_name(mbps):>11}  {profile:<48}"
                  f"{answer.jct_ms / 1e3:7.2f} s  {answer.wire_bytes / 1e6:6.2f} MB"
                  f"   {sum(left[number + 1:]):4.0f} s left{note}", flush=True)
