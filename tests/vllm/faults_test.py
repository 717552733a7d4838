"""Aborts, kills and restarts: every request ends, blocks come back, the next answers are right."""

import concurrent.futures
import time
import unittest

from pd_case import PdCase, each_policy
from vllm_pd import reference
from vllm_pd.client import Aborted, RequestFailed

CONCURRENT = 8
END_SECONDS = 120  # after a fault, on a machine that is busy


@each_policy("lossless")
class Faults(PdCase):
    @classmethod
    def prepare(cls):
        cls.prompts = reference.prompt_set(20)
        cls.expected = reference.tokens(cls.network, cls.prompts)

    def expect_right_answers(self, count: int = 4) -> None:
        """From prompts of several blocks, the end of the set."""
        for prompt, expected in list(zip(self.prompts, self.expected))[-count:]:
            got = self.ask(prompt).tokens
            if self.policy.exact:
                self.assertEqual(got, expected)

    def test_abort_storm(self):
        """Half of the clients hang up: at once, after the first token, in the middle."""
        def one(number: int) -> str:
            abort = (None, 0, None, 1, None, 5)[number % 6]
            index = number % len(self.prompts)
            try:
                answer = self.ask(self.prompts[index], abort_after_tokens=abort,
                                  seconds=END_SECONDS)
            except Aborted:
                return "aborted"
            return "right" if answer.tokens == self.expected[index] else "wrong"
        with concurrent.futures.ThreadPoolExecutor(CONCURRENT) as pool:
            ends = list(pool.map(one, range(60)))
        self.assertEqual(ends.count("aborted"), 30)
        if self.policy.exact:
            self.assertEqual(ends.count("right"), 30)
        self.expect_blocks_returned()
        self.expect_right_answers()

    def kill_while_asking(self, side: str) -> None:
        """Requests under way when a server dies end, in whatever way, soon."""
        def one(index: int) -> str:
            try:
                return self.ask(self.prompts[-1 - index], seconds=END_SECONDS).finish_reason
            except RequestFailed as error:
                return str(error)
        with concurrent.futures.ThreadPoolExecutor(CONCURRENT) as pool:
            asked = [pool.submit(one, index) for index in range(CONCURRENT)]
            time.sleep(1.5)  # some computed, some on the link, some waiting
            self.cluster.servers[side].kill()
            begin = time.monotonic()
            ends = [future.result() for future in asked]
        self.assertLess(time.monotonic() - begin, END_SECONDS, ends)

    def test_decode_dies_and_returns(self):
        self.kill_while_asking("decode")
        self.cluster.restart("decode")
        self.expect_right_answers()
        self.expect_blocks_returned()

    def test_prefill_dies_and_returns(self):
        self.kill_while_asking("prefill")
        decode = self.cluster.servers["decode"]
        self.assertTrue(decode.alive())
        self.assertTrue(decode.client.healthy())
        alone = decode.client.complete(self.prompts[2], reference.OUTPUT_TOKENS)
        self.assertEqual(alone.tokens, self.expected[2])
        self.cluster.restart("prefill")
        self.expect_right_answers()
        self.expect_blocks_returned()


if __name__ == "__main__":
    unittest.main()
