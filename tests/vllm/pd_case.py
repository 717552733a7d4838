"""What the checks with real servers share: a network, and one pair of servers per policy.

KVSERVE_VLLM_POLICIES names the policies instead of those of the case, separated by semicolons
(profiles hold commas).
"""

import os
import sys
import unittest

from vllm_pd import network, policies, reference
from vllm_pd.cluster import Cluster
from vllm_pd.measure import unique_salt
from vllm_pd.policies import Policy


class PdCase(unittest.TestCase):
    """A class per policy, made by `each_policy`; its servers live as long as its tests run."""

    policy: Policy
    options: tuple[str, ...] = ()

    @classmethod
    def setUpClass(cls):
        if cls is PdCase or not hasattr(cls, "policy"):
            raise unittest.SkipTest("made per policy")
        cls.network = network.make_network()
        cls.addClassCleanup(cls.network.close)
        cls.prepare()
        cls.cluster = Cluster(cls.network, cls.policy.connector, reference.DTYPE, cls.options,
                              name=cls.__name__)
        cls.addClassCleanup(cls.cluster.close)

    @classmethod
    def prepare(cls) -> None:
        """What needs the network before the servers start."""

    def ask(self, prompt: list[int], max_tokens: int = reference.OUTPUT_TOKENS, salted: bool = True,
            **options):
        extra = self.policy.request | (unique_salt() if salted else {})
        return self.cluster.client.complete(prompt, max_tokens, extra, **options)

    def expect_blocks_returned(self, seconds: float = 60) -> None:
        self.assertEqual(self.cluster.wait_idle(seconds), dict.fromkeys(self.cluster.servers, 0.0))


def each_policy(*names: str):
    """Decorates a case: adds to its module one subclass per policy."""
    if chosen := os.environ.get("KVSERVE_VLLM_POLICIES"):
        names = tuple(chosen.split(";"))

    def decorate(case: type[PdCase]) -> type[PdCase]:
        module = sys.modules[case.__module__]
        for policy in policies.named(names):
            name = f"{case.__name__}_{''.join(c if c.isalnum() else '_' for c in policy.name)}"
            members = {"policy": policy, "__module__": case.__module__}
            setattr(module, name, type(name, (case,), members))
        return case
    return decorate
