"""Tensor parallelism: equal sizes give the right KV, each rank its own heads; others are refused in
words, and no request hangs or takes an engine with it."""

import copy
import unittest

from stub_engine import (
    DIM,
    LAYERS,
    Pair,
    StubEngine,
    prompt_of,
    single_answer,
    transfer_config,
)
from test_pair import PairTest
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole

from kvserve.vllm.connector import KVServeConnector

SIZES = (1, 2, 4)
TOKENS = 40


class Sizes(unittest.TestCase):
    def engines(self, role: str, heads: int, policy: str = "recompute") -> dict[int, StubEngine]:
        engines = {}
        for ranks in SIZES:
            engines[ranks] = StubEngine(transfer_config(role, policy), heads=heads, ranks=ranks)
            self.addCleanup(engines[ranks].close)
        return engines

    def test_all_pairs_of_sizes_with_more_and_fewer_heads_than_ranks(self):
        for heads in (8, 4, 2, 1):
            prefills, decodes = (self.engines(role, heads)
                                 for role in ("kv_producer", "kv_consumer"))
            for number, (ours, theirs) in enumerate((a, b) for a in SIZES for b in SIZES):
                with self.subTest(heads=heads, prefill=ours, decode=theirs):
                    pair = Pair(prefills[ours], decodes[theirs])
                    prompt = prompt_of(TOKENS, seed=number)
                    answer = pair.ask(prompt)
                    self.assertEqual(answer.tokens, single_answer(prompt, heads=heads))
                    said = answer.params["kvserve"]
                    if ours == theirs:
                        self.assertIsNone(said["error"])
                        # A head that several ranks have is sent to each of them.
                        self.assertEqual(said["raw_bytes"],
                                         (TOKENS - 1) * LAYERS * 2 * max(heads, ours) * DIM * 2)
                    else:
                        self.assertRegex(said["error"],
                                         f"{ours} tensor-parallel ranks and this one {theirs}")
                        self.assertEqual(said["raw_bytes"], 0)
            for engine in (*prefills.values(), *decodes.values()):
                engine.drain()
                self.assertEqual(engine.free_blocks(), engine.free_at_start)

    def test_one_rank_to_eight_that_share_two_heads(self):
        pair = Pair(StubEngine(transfer_config("kv_producer"), heads=2),
                    StubEngine(transfer_config("kv_consumer"), heads=2, ranks=8))
        self.addCleanup(pair.close)
        prompt = prompt_of(TOKENS)
        answer = pair.ask(prompt)
        self.assertEqual(answer.tokens, single_answer(prompt))
        self.assertRegex(answer.params["kvserve"]["error"],
                         "1 tensor-parallel ranks and this one 8")

    def test_policy_fail_ends_the_request_with_an_error(self):
        pair = Pair(StubEngine(transfer_config("kv_producer", "fail"), ranks=2),
                    StubEngine(transfer_config("kv_consumer", "fail")))
        self.addCleanup(pair.close)
        self.assertEqual(pair.ask(prompt_of(TOKENS)).reason, "error")

    def test_aborted_before_it_was_scheduled(self):
        """The prefill engine is told that nothing is needed, with however many ranks it has."""
        for ours, theirs in ((1, 2), (4, 2)):
            with self.subTest(prefill=ours, decode=theirs):
                pair = Pair(StubEngine(transfer_config("kv_producer"), heads=4, ranks=ours),
                            StubEngine(transfer_config("kv_consumer"), heads=4, ranks=theirs))
                self.addCleanup(pair.close)
                pair.decode.abort(pair.start(prompt_of(TOKENS)))
                pair.decode.step()
                prompt = prompt_of(TOKENS, 1)
                self.assertEqual(pair.ask(prompt).tokens, single_answer(prompt, heads=4))


class OtherKinds(unittest.TestCase):
    def test_pipeline_and_context_parallelism_are_refused_at_start(self):
        engine = StubEngine(None)
        self.addCleanup(engine.close)
        for kind in ("pipeline", "prefill_context", "decode_context"):
            config = copy.copy(engine.config)
            config.kv_transfer_config = transfer_config("kv_both")
            config.parallel_config = copy.copy(config.parallel_config)
            setattr(config.parallel_config, f"{kind}_parallel_size", 2)
            with self.subTest(kind), self.assertRaisesRegex(ValueError, "context parallelism"):
                KVServeConnector(config, KVConnectorRole.SCHEDULER, engine.kv_config)


class Ranks(PairTest):
    def asked_with(self, change) -> dict:
        """The report of a request whose kv_transfer_params were changed on their way."""
        pair = self.pair(prefill={"ranks": 2}, decode={"ranks": 2})
        prompt = prompt_of(TOKENS)
        params = pair.prefill_request(prompt)
        change(params["kvserve"]["addresses"])
        pair.decode.add("d", prompt, 4, params)
        pair.decode.run("d")
        answer = pair.decode.answers["d"]
        self.assertEqual(answer.tokens, single_answer(prompt))
        pair.decode.drain()
        self.assertEqual(pair.decode.free_blocks(), pair.decode.free_at_start)
        return answer.params["kvserve"]

    def test_load_that_fails_on_one_rank_has_failed(self):
        for rank in (0, 1):
            said = self.asked_with(lambda addresses: addresses.__setitem__(rank, "127.0.0.1:1"))
            self.assertEqual(said["reason"], "recomputed")
            self.assertTrue(said["error"])

    def test_ranks_that_end_in_different_steps_are_added_up(self):
        pair = self.pair(prefill={"ranks": 2}, decode={"ranks": 2})
        transport = pair.decode.workers[1]._worker._transport
        take, calls = transport.take_fetch_reports, iter(range(10**6))
        transport.take_fetch_reports = lambda: take() if next(calls) % 200 == 199 else []
        prompt = prompt_of(TOKENS)
        answer = pair.ask(prompt)
        self.assertEqual(answer.tokens, single_answer(prompt))
        self.assertEqual(answer.params["kvserve"]["raw_bytes"],
                         (TOKENS - 1) * LAYERS * 2 * 2 * DIM * 2)

    def test_heads_of_another_rank_are_refused(self):
        """They have the same shape, tokens and model."""
        said = self.asked_with(lambda addresses: addresses.reverse())
        self.assertRegex(said["error"], "tokens or context")


if __name__ == "__main__":
    unittest.main()
