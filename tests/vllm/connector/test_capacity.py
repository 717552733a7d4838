"""Buffers that are full, and many requests at once."""

import statistics
import unittest

import torch
from stub_engine import (
    Pair,
    StubEngine,
    prompt_of,
    single_answers,
    step_until,
    transfer_config,
)
from test_pair import PairTest


class SmallBuffers(PairTest):
    def test_a_thousand_requests_through_a_sender_that_holds_one_and_a_half(self):
        """The sender holds 1 MiB; 22 tokens of this cache are 0.66 MiB. Every tenth time two come
        at once: what does not fit is computed on the decode engine."""
        wide = {"heads": 32, "dtype": torch.float32}
        pair = self.pair("none", max_staged_bytes=1 << 20, frame_tokens=16, prefill=wide,
                         decode=wide)
        prompts = [prompt_of(22, seed) for seed in range(20)]
        expected = single_answers(prompts, 1, **wide)
        sender = pair.prefill.worker._worker._transport.sender
        reasons = []
        for number in range(900):
            # A receiver confirms after its request has ended: what it took is held until then.
            step_until(lambda: sender.staged_bytes == 0, pair.prefill, pair.decode,
                       what="confirmation of the tickets before")
            chosen = [number % 20, (number + 1) % 20][:1 + (number % 9 == 0)]
            names = [pair.start(prompts[n], 1, salt=f"{number} {n}") for n in chosen]
            pair.decode.run(*names)
            for name, n in zip(names, chosen):
                answer = pair.decode.answers.pop(name)
                self.assertEqual(answer.tokens, expected[n])
                reasons.append(answer.params["kvserve"]["reason"])
        self.assertEqual(len(reasons), 1000)
        self.assertGreaterEqual(reasons.count("default"), 900)
        self.assertEqual(set(reasons), {"default", "recomputed"})
        for engine in (pair.prefill, pair.decode):
            engine.drain()
            self.assertEqual(engine.free_blocks(), engine.free_at_start)
        self.assertLessEqual(sender.staged_bytes, 1 << 20)


class BothWays(unittest.TestCase):
    def test_two_engines_that_send_to_each_other_with_full_buffers_do_not_lock(self):
        small = {"max_staged_bytes": 1 << 20, "connections": 1, "threads": 1, "profile": "none"}
        engines = [StubEngine(transfer_config("kv_both", **small), blocks=128) for _ in range(2)]
        for engine in engines:
            self.addCleanup(engine.close)
        pairs = [Pair(*engines), Pair(*reversed(engines))]
        prompts = [prompt_of(300, seed) for seed in range(10)]
        expected = single_answers(prompts)
        names: dict[str, tuple[StubEngine, int]] = {}
        for n, prompt in enumerate(prompts):  # each sender is full after three
            for pair in pairs:
                names[pair.start(prompt, salt=str(id(pair)))] = (pair.decode, n)
        step_until(lambda: all(engine.answers[name].finished
                               for name, (engine, _) in names.items()), *engines,
                   what="end of all requests")
        delivered = 0
        for name, (engine, n) in names.items():
            self.assertEqual(engine.answers[name].tokens, expected[n], name)
            delivered += engine.answers[name].params["kvserve"]["error"] is None
        self.assertGreaterEqual(delivered, 2 * 3)
        for engine in engines:
            engine.drain()
            self.assertEqual(engine.free_blocks(), engine.free_at_start)


class Parallel(PairTest):
    def test_two_hundred_loads_at_once_with_queueing_apart_from_the_wire(self):
        pair = self.pair(prefill={"blocks": 512}, decode={"blocks": 512},
                         consumer={"connections": 2}, pace_bytes_per_s=4e6)
        prompts = [prompt_of(24, seed) for seed in range(200)]
        names = [pair.start(prompt, 1) for prompt in prompts]
        pair.decode.run(*names)
        stages = []
        for name, expected in zip(names, single_answers(prompts, 1)):
            answer = pair.decode.answers[name]
            self.assertEqual(answer.tokens, expected)
            self.assertIsNone(answer.params["kvserve"]["error"])
            stages.append(answer.params["kvserve"]["stages_ms"])
        # Two at a time: the last of them have waited for nearly all others, on no wire.
        self.assertGreater(max(stage["queue"] for stage in stages),
                           10 * statistics.median(stage["wire"] for stage in stages))
        observed = sum(len(stats.data["histograms"].get("load_queue_seconds", ()))
                       for stats in pair.decode.stats)
        self.assertEqual(observed, 200)


if __name__ == "__main__":
    unittest.main()
