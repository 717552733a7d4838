"""Scores and choices against plain loops: python -m unittest sparse.sparse_test, where torch is."""

import argparse
import math
import unittest

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sparse import scores
from sparse.__main__ import Evaluation
from sparse.model import Model


class ScoresTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.queries, self.keys = torch.randn(4, 150, 8), torch.randn(2, 150, 8)

    def plain_mass(self, first: int) -> torch.Tensor:
        total = torch.zeros(2, 150)
        for q in range(first, 150):
            for head in range(4):
                logits = self.keys[head // 2, :q + 1] @ self.queries[head, q] / math.sqrt(8)
                total[head // 2, :q + 1] += logits.softmax(-1)
        return total

    def test_mass_is_that_of_plain_loops(self):
        for first in (0, 20, 149):
            torch.testing.assert_close(scores.mass(self.queries, self.keys, first),
                                       self.plain_mass(first))

    def test_pooling_takes_the_largest_neighbour_before_the_observed_tokens(self):
        first = 150 - scores.OBSERVED
        plain = self.plain_mass(first)
        found = scores.pooled_mass(self.queries, self.keys)
        for t in (0, 2, 50, first - 1):
            near = plain[:, max(0, t - 3):min(first, t + 4)].amax(1)
            torch.testing.assert_close(found[:, t], near)
        torch.testing.assert_close(found[:, first:], plain[:, first:])

    def test_expected_attention_averages_rotated_queries(self):
        values = torch.randn(2, 150, 8)
        mean = torch.randn(4, 8)
        statistics = scores.QueryStatistics(mean, torch.zeros(4, 8, 8))
        found = scores.expected(statistics, self.keys, values, 1e4)
        turn = scores.rotation(torch.linspace(150, 150 + scores.HORIZON, scores.POSITIONS), 8, 1e4)
        for head in range(2):
            total = torch.zeros(150)
            for h in (2 * head, 2 * head + 1):
                query = (turn @ mean[h]).mean(0)
                total += (self.keys[head] @ query / math.sqrt(8)).softmax(-1)
            torch.testing.assert_close(found[head], total * values[head].norm(dim=-1))

    def test_rotations_turn_and_keep_lengths(self):
        turn = scores.rotation(torch.tensor([0, 3]), 8, 1e4)
        torch.testing.assert_close(turn[0], torch.eye(8))
        torch.testing.assert_close(turn[1] @ turn[1].T, torch.eye(8))
        self.assertAlmostEqual(turn[1][4, 0].item(), math.sin(3), places=6)

    def test_choices_keep_their_share_with_sinks_and_recent_tokens(self):
        found = torch.rand(3, 2, 40)
        apart = scores.keep(found, 0.3, False, 2, 5)
        self.assertTrue((apart.sum(-1) == 12).all())
        self.assertTrue(apart[..., :2].all() and apart[..., 35:].all())
        common = scores.keep(found, 0.3, True, 2, 5)
        self.assertTrue((common == common[0, 0]).all())
        self.assertEqual(common[0, 0].sum(), 12)
        best = found[1, 1, 2:35].argmax() + 2
        self.assertTrue(apart[1, 1, best])


class ModelTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        torch.set_grad_enabled(False)
        config = LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=48,
                             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
        self.plain = LlamaForCausalLM(config).eval()
        self.ids = torch.randint(0, 50, (60,))

    def tearDown(self):
        torch.set_grad_enabled(True)

    def test_with_all_tokens_kept_nothing_changes(self):
        expected = self.plain(self.ids[None]).logits[0, 40:].log_softmax(-1)
        model = Model(self.plain)
        prompt = model.prefill(self.ids[:40])
        kept = torch.ones(2, 2, 40, dtype=torch.bool)
        found = model.log_probabilities(prompt, kept, self.ids[40:])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def test_a_head_does_not_see_what_it_dropped(self):
        model = Model(self.plain)
        prompt = model.prefill(self.ids[:40])
        kept = torch.ones(2, 2, 40, dtype=torch.bool)
        kept[1, 0, 7] = False
        before = model.log_probabilities(prompt, kept, self.ids[40:])
        prompt.keys[1][0, 7] += 100
        prompt.values[1][0, 7] += 100
        torch.testing.assert_close(model.log_probabilities(prompt, kept, self.ids[40:]), before)
        prompt.keys[1][1, 7] += 100
        self.assertFalse(torch.equal(model.log_probabilities(prompt, kept, self.ids[40:]), before))

    def test_query_statistics_are_those_before_rope(self):
        model = Model(self.plain)
        layer = self.plain.model.layers[0]
        hidden = layer.input_layernorm(self.plain.model.embed_tokens(self.ids))
        queries = layer.self_attn.q_proj(hidden).view(60, 4, 8)[1:]
        statistics = model.query_statistics([model.prefill(self.ids)])[0]
        torch.testing.assert_close(statistics.mean, queries.mean(0), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(statistics.covariance[2], queries[:, 2].T.cov(correction=0),
                                   rtol=1e-3, atol=1e-5)

    def test_every_method_keeps_its_share(self):
        evaluation = Evaluation.__new__(Evaluation)
        evaluation.model = Model(self.plain)
        evaluation.options = argparse.Namespace(recent=4)
        prompt = evaluation.model.prefill(self.ids)
        evaluation.statistics = evaluation.model.query_statistics([prompt])
        masks = evaluation.masks(prompt)
        self.assertEqual(len(masks), 1 + 7 * 3)
        for (method, _, share), kept in masks:
            self.assertEqual(kept.shape, (2, 2, 60), method)
            self.assertTrue((kept.sum(-1) == max(math.ceil(share * 60), 4 + 4)).all(), method)
            self.assertTrue(kept[..., -4:].all(), method)


if __name__ == "__main__":
    unittest.main()
