"""Lossy KV stays with those who asked for it: on the decode server its blocks hold the same tokens
as exact ones. And its errors do not add up over the turns of a chat."""

import unittest

from pd_case import PdCase
from vllm_pd import policies, prompts, reference
from vllm_pd.measure import unique_salt

# So coarse that its tokens are others: a leak shows.
HARSH = policies.pinned("hadamard|uniform:k_levels=4,v_levels=3|rans")
EXACT = policies.POLICIES["lossless"]
KL_LIMIT = 0.02
TURN_TOKENS = 100


class Quality(PdCase):
    policy = EXACT  # every profile has the same servers

    @classmethod
    def prepare(cls):
        asked = reference.prompt_set(20)
        pairs = [(prompt, tokens) for prompt, tokens
                 in zip(asked, reference.tokens(cls.network, asked)) if len(prompt) >= 255]
        cls.prompts, cls.expected = map(list, zip(*pairs))
        text = prompts.of_length(10 * TURN_TOKENS, 1)[0]
        cls.turns = [text[:end] for end in range(TURN_TOKENS, len(text) + 1, TURN_TOKENS)]
        cls.distributions = reference.distributions(cls.network, cls.turns)

    def tokens(self, policy, prompt: list[int]) -> list[int]:
        """Without a salt, so that blocks may come from the prefix cache."""
        answer = self.cluster.client.reported(prompt, reference.OUTPUT_TOKENS, policy.request)
        return answer.tokens

    def test_strict_requests_get_no_lossy_blocks(self):
        lossy = [self.tokens(HARSH, prompt) for prompt in self.prompts]
        exact = [self.tokens(EXACT, prompt) for prompt in self.prompts]
        self.assertNotEqual(lossy, self.expected, "this profile is too good to show a leak")
        self.assertEqual(exact, self.expected)

    def test_lossy_requests_use_exact_blocks_or_their_own(self):
        prompt = self.prompts[-1]
        self.tokens(EXACT, prompt)
        first, second = (self.cluster.client.reported(prompt, 4, HARSH.request) for _ in range(2))
        self.assertEqual(first.tokens, second.tokens)
        self.assertLess(second.report["wire_bytes"], first.report["wire_bytes"])

    def turn_kl(self, salts: list[dict]) -> list[float]:
        answers = [self.cluster.client.next_token(turn, policies.LOSSY.request | salt)
                   for turn, salt in zip(self.turns, salts, strict=True)]
        return [reference.kl(wanted, got) for wanted, got in zip(self.distributions, answers)]

    def test_ten_turns_stay_within_the_budget(self):
        count = len(self.turns)
        grown = self.turn_kl([unique_salt()] * count)
        anew = self.turn_kl([unique_salt() for _ in range(count)])
        print(f"\n    {policies.LOSSY.name}: mean KL {sum(grown) / count:.5f} over {count} turns, "
              f"each on the KV of the one before; {sum(anew) / count:.5f} with all KV sent anew",
              flush=True)
        self.assertLess(sum(grown) / count, KL_LIMIT)
        self.assertLess(sum(grown[-3:]) / 3, KL_LIMIT)


if __name__ == "__main__":
    unittest.main()
