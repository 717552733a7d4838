"""Prefill and decode apart give the tokens of a single server."""

import unittest

from pd_case import PdCase, each_policy
from vllm_pd import policies, reference
from vllm_pd.client import RequestFailed
from vllm_pd.measure import unique_salt
from vllm_pd.results import share_equal


@each_policy("none", "lossless", policies.LOSSY.name)
class Equality(PdCase):
    @classmethod
    def prepare(cls):
        cls.prompts = reference.prompt_set()
        cls.expected = reference.tokens(cls.network, cls.prompts)

    def compare(self, salted: bool, count: int) -> None:
        shares, wrong = [], []
        for prompt, expected in zip(self.prompts[:count], self.expected):
            answer = self.report(prompt, salted)
            got = answer.tokens
            self.expect_transfer(answer.report, len(prompt), salted)
            shares.append(share_equal(expected, got))
            if got != expected:
                wrong.append(f"{len(prompt)} tokens: {got}, not {expected}")
        print(f"\n    {self.policy.name}: {count - len(wrong)} of {count} prompts equal, "
              f"{sum(shares) / count:.1%} of the tokens", flush=True)
        if self.policy.exact:
            self.assertEqual(wrong, [])
        self.expect_blocks_returned()

    def report(self, prompt: list[int], salted: bool):
        extra = self.policy.request | (unique_salt() if salted else {})
        return self.cluster.client.reported(prompt, reference.OUTPUT_TOKENS, extra)

    def expect_transfer(self, report: dict, prompt_tokens: int, salted: bool) -> None:
        """Equal tokens say nothing if decode computed the prompt itself."""
        if not self.policy.profile or prompt_tokens == 1 or not salted:
            return
        self.assertEqual((report.get("profile"), report.get("error")),
                         (self.policy.reported_profile, None))
        self.assertGreater(report["wire_bytes"], 0, report)

    def test_a_hundred_prompts(self):
        self.compare(salted=True, count=100)

    def test_prefixes_known_to_both_sides(self):
        """The same prompts twice without a salt: full blocks come from the caches."""
        self.compare(salted=False, count=20)
        self.compare(salted=False, count=20)

    def test_an_empty_prompt_is_refused(self):
        with self.assertRaises(RequestFailed) as refused:
            self.ask([])
        self.assertEqual(refused.exception.status, 400)
        self.assertEqual(self.ask(self.prompts[2]).finish_reason, "length")


if __name__ == "__main__":
    unittest.main()
