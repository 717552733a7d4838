"""Whatever goes wrong with a transfer, requests end, blocks come back and answers stay right."""

import time
import unittest

from stub_engine import Answer, Pair, StubEngine, prompt_of, single_answer, transfer_config
from test_pair import LOSSY, PairTest


class LoadFailures(PairTest):
    def failing(self, policy: str, change) -> tuple[Pair, list[int], Answer]:
        pair = self.pair(policy=policy)
        prompt = prompt_of(120)
        params = pair.prefill_request(prompt)
        change(params["kvserve"])
        pair.decode.add("d", prompt, 4, params)
        pair.decode.run("d")
        return pair, prompt, pair.decode.answers["d"]

    CHANGES = {
        "no such ticket": lambda k: k.update(ticket="nobody"),
        "nobody listens": lambda k: k.update(addresses=["127.0.0.1:1"]),
        "another release": lambda k: k.update(version=99),
        "unequal tensor parallelism": lambda k: k.update(tp_size=4, addresses=["a"] * 4),
        "another model": lambda k: k["facts"].update(model_id="other"),
        "tokens of another prompt": lambda k: k.update(tokens=7),
        "rubbish": lambda k: k.update(addresses="127.0.0.1:1"),
    }

    def test_recompute_gives_the_right_answer_and_says_why(self):
        for name, change in self.CHANGES.items():
            with self.subTest(name):
                pair, prompt, answer = self.failing("recompute", change)
                self.assertEqual(answer.tokens, single_answer(prompt))
                self.assertTrue(answer.params["kvserve"]["error"])
                pair.decode.drain()
                self.assertEqual(pair.decode.free_blocks(), pair.decode.free_at_start)

    def test_fail_ends_the_request_with_an_error(self):
        for name, change in self.CHANGES.items():
            with self.subTest(name):
                pair, _, answer = self.failing("fail", change)
                self.assertEqual(answer.reason, "error")
                pair.decode.drain()
                self.assertEqual(pair.decode.free_blocks(), pair.decode.free_at_start)

    def test_unequal_parallelism_is_named(self):
        _, _, answer = self.failing("recompute", self.CHANGES["unequal tensor parallelism"])
        self.assertRegex(answer.params["kvserve"]["error"], "4 tensor-parallel ranks.* 1")

    def test_kv_of_another_connector(self):
        pair = self.pair()
        prompt = prompt_of(60)
        pair.decode.add("d", prompt, 4, {"do_remote_prefill": True, "remote_engine_id": "x",
                                         "remote_block_ids": [[1]], "remote_host": "h",
                                         "remote_port": 1})
        pair.decode.run("d")
        self.assertEqual(pair.decode.answers["d"].tokens, single_answer(prompt))

    def test_request_that_asks_for_what_cannot_be_fails_on_the_prefill_engine(self):
        pair = self.pair(policy="fail")
        pair.prefill.add("p", prompt_of(60), 1,
                         {"do_remote_decode": True, "kvserve": {"profile": "ultra"}})
        pair.prefill.run("p")
        self.assertEqual(pair.prefill.answers["p"].reason, "error")
        pair.prefill.drain()
        self.assertEqual(pair.prefill.free_blocks(), pair.prefill.free_at_start)

    def test_or_is_sent_uncompressed_and_told(self):
        pair = self.pair(LOSSY, policy="recompute")
        prompt = prompt_of(60)
        answer = pair.ask(prompt, params={"kvserve": {"profile": "ultra"}})
        self.assertEqual(answer.tokens, single_answer(prompt))
        self.assertEqual(answer.params["kvserve"]["reason"], "invalid_request")
        self.assertIn("ultra", answer.params["kvserve"]["error"])


class Mismatch(PairTest):
    def refused(self, prefill: dict, decode: dict, word: str) -> None:
        pair = self.pair(prefill=prefill, decode=decode)
        prompt = prompt_of(60)
        answer = pair.ask(prompt)
        self.assertEqual(answer.tokens, single_answer(prompt, **decode))
        self.assertRegex(answer.params["kvserve"]["error"], word)

    def test_other_number_of_layers(self):
        self.refused({"layers": 4}, {"layers": 5},
                     r"in layers: '4 \(.* on the prefill engine, '5 \(.* here")

    def test_draft_layers_of_one_engine_alone(self):
        """Speculative decoding on the decode engine adds layers that the other does not have."""
        self.refused({"layers": 4}, {"layers": 4, "draft_layers": 1},
                     r"in layers: '4 \(.* on the prefill engine, '5 \(.* here")
        self.refused({"layers": 4, "draft_layers": 1}, {"layers": 4},
                     r"in layers: '5 \(.* on the prefill engine, '4 \(.* here")

    def test_other_dtype(self):
        import torch

        self.refused({"dtype": torch.bfloat16}, {"dtype": torch.float16},
                     "in KV dtype: 'bfloat16' on the prefill engine, 'float16' here")

    def test_other_weights_of_one_architecture(self):
        pair = Pair(StubEngine(transfer_config("kv_producer", model_id="one")),
                    StubEngine(transfer_config("kv_consumer", model_id="two")))
        self.addCleanup(pair.close)
        prompt = prompt_of(60)
        answer = pair.ask(prompt)
        self.assertEqual(answer.tokens, single_answer(prompt))
        self.assertRegex(answer.params["kvserve"]["error"],
                         "in model_id: 'one' on the prefill engine, 'two' here")


class Aborts(PairTest):
    def test_aborted_while_loading(self):
        pair = self.pair(frame_tokens=16)
        names = []
        for n in range(20):
            names.append(pair.start(prompt_of(100, seed=n)))
            if n % 2:
                pair.decode.step()
            pair.decode.abort(names[-1])
        started = time.monotonic()
        pair.decode.drain()
        self.assertLess(time.monotonic() - started, 10)
        self.assertEqual(pair.decode.free_blocks(), pair.decode.free_at_start)
        prompt = prompt_of(100)
        self.assertEqual(pair.ask(prompt).tokens, single_answer(prompt))

    def test_aborted_before_it_was_scheduled_releases_the_ticket(self):
        pair = self.pair()
        name = pair.start(prompt_of(100))
        pair.decode.abort(name)
        pair.decode.step()
        pair.decode.drain()
        pair.wait_for_no_tickets()

    def test_aborted_on_the_prefill_engine(self):
        pair = self.pair(prefill={"batch_tokens": 48})
        pair.prefill.add("p", prompt_of(300), 1, {"do_remote_decode": True})
        pair.prefill.step()
        pair.prefill.step()
        pair.prefill.abort("p")
        pair.prefill.step()
        pair.prefill.drain()
        self.assertEqual(pair.prefill.worker._worker._transport.sender.open_tickets, 0)
        self.assertEqual(pair.prefill.free_blocks(), pair.prefill.free_at_start)

    def test_prefill_engine_gone_before_its_kv_was_taken(self):
        pair = self.pair()
        prompt = prompt_of(100)
        params = pair.prefill_request(prompt)
        pair.prefill.worker.shutdown()
        pair.decode.add("d", prompt, 4, params)
        pair.decode.run("d")
        self.assertEqual(pair.decode.answers["d"].tokens, single_answer(prompt))
        pair.decode.drain()
        self.assertEqual(pair.decode.free_blocks(), pair.decode.free_at_start)

    def test_expired_lease_is_a_failed_load_and_never_other_data(self):
        pair = self.pair(lease_s=1)
        prompt = prompt_of(100)
        params = pair.prefill_request(prompt)
        pair.wait_for_no_tickets()
        pair.decode.add("d", prompt, 4, params)
        pair.decode.run("d")
        self.assertEqual(pair.decode.answers["d"].tokens, single_answer(prompt))
        self.assertTrue(pair.decode.answers["d"].params["kvserve"]["error"])


class Capacity(PairTest):
    def test_more_requests_than_the_sender_holds(self):
        # 1 MiB: one prompt of 700 tokens (0.7 MB raw) and what has been encoded of another.
        pair = self.pair(max_staged_bytes=1 << 20)
        prompts = [prompt_of(700, seed=n) for n in range(6)]
        params = [pair.prefill_request(prompt) for prompt in prompts]
        for n, prompt in enumerate(prompts):
            pair.decode.add(f"d{n}", prompt, 3, params[n])
            pair.decode.run(f"d{n}")
            self.assertEqual(pair.decode.answers[f"d{n}"].tokens, single_answer(prompt, 3))
        errors = [pair.decode.answers[f"d{n}"].params["kvserve"]["error"]
                  for n in range(len(prompts))]
        self.assertIsNone(errors[0])
        self.assertRegex(errors[-1], "would pass the limit")


class Stats(PairTest):
    def test_every_transfer_is_counted(self):
        pair = self.pair(LOSSY)
        for n in range(3):
            pair.ask(prompt_of(100, seed=n))
        pair.wait_for_no_tickets()
        total = type(pair.decode.stats[0])()
        for stats in pair.decode.stats + pair.prefill.stats:
            total.aggregate(stats)
        counters = {tuple(key.split("\x1f")): amount
                    for key, amount in total.data["counters"].items()}
        self.assertEqual(counters[("loads", "delivered", "0")], 3)
        self.assertEqual(counters[("offers", "delivered", "0")], 3)
        self.assertGreater(counters[("raw_bytes", "received", "0")],
                           2 * counters[("wire_bytes", "received", "0")])
        self.assertEqual(len(total.data["histograms"]["load_seconds"]), 3)
        self.assertIn("all ranks", " ".join(total.reduce()))

    def test_what_is_not_sent_is_not_counted_as_sent(self):
        """The decode engine holds most of the second prompt, and nobody takes the third."""
        pair = self.pair(LOSSY, frame_tokens=16, lease_s=1)
        shared = prompt_of(160)
        for end in (1, 2):
            pair.ask(shared + prompt_of(40, seed=end))
        pair.prefill_request(prompt_of(200, seed=3))
        pair.wait_for_no_tickets()
        raw = {}
        for stats in pair.decode.stats + pair.prefill.stats:
            for key, amount in stats.data["counters"].items():
                name, *labels = key.split("\x1f")
                if name == "raw_bytes":
                    raw[labels[0]] = raw.get(labels[0], 0) + amount
        self.assertAlmostEqual(raw["sent"] / raw["received"], 1, delta=0.05)


class Start(unittest.TestCase):
    """What no request could be served by is an error at start, in words."""

    def test_default_profile_that_needs_a_calibration(self):
        with self.assertRaisesRegex(ValueError, "profile='affine.*calibrat"):
            StubEngine(transfer_config("kv_producer",
                                       profile="affine:source=calibrated|uniform|rans"))

    def test_default_profile_that_needs_a_prompts_queries(self):
        with self.assertRaisesRegex(ValueError, "profile='attention.*queries"):
            StubEngine(transfer_config("kv_producer", profile="attention:outside=0.25|mixed|rans"))


if __name__ == "__main__":
    unittest.main()
