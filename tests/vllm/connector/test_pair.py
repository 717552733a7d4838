"""A prefill and a decode engine with real schedulers, caches and transfers."""

import unittest

import kvserve
import torch
from stub_engine import (
    Pair,
    StubEngine,
    prompt_of,
    single_answer,
    single_answers,
    transfer_config,
)

LOSSY = "hadamard|uniform:k_levels=16,v_levels=8|rans"


def make_pair(profile: str = "lossless", *, prefill: dict | None = None,
              decode: dict | None = None, policy: str = "recompute",
              consumer: dict | None = None, **extra) -> Pair:
    """`prefill` and `decode` are the engines' options, `consumer` and the rest their connectors'
    settings."""
    return Pair(
        StubEngine(transfer_config("kv_producer", policy, profile=profile, **extra),
                   **(prefill or {})),
        StubEngine(transfer_config("kv_consumer", policy, **(consumer or {})), **(decode or {})))


class PairTest(unittest.TestCase):
    def pair(self, *args, **options) -> Pair:
        pair = make_pair(*args, **options)
        self.addCleanup(pair.close)
        return pair


class Exact(PairTest):
    def test_answers_are_those_of_one_engine(self):
        for profile in ("none", "lossless"):
            pair = self.pair(profile, frame_tokens=64)
            for length in (1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 255, 257, 700):
                prompt = prompt_of(length, seed=length)
                answer = pair.ask(prompt)
                self.assertEqual(answer.tokens, single_answer(prompt), f"{profile} {length}")
                if length > 1:
                    said = answer.params["kvserve"]
                    self.assertEqual(said["profile"], profile)
                    self.assertGreater(said["raw_bytes"], 0)

    def test_decode_computes_only_the_last_token(self):
        pair = self.pair()
        before = pair.decode.prefilled_tokens
        pair.ask(prompt_of(300))
        self.assertEqual(pair.decode.prefilled_tokens, before)

    def test_engines_with_different_block_sizes(self):
        for ours, theirs in ((16, 128), (128, 16), (32, 16)):
            pair = self.pair(prefill={"block_tokens": ours}, decode={"block_tokens": theirs})
            for length in (15, 130, 300):
                prompt = prompt_of(length, seed=length)
                self.assertEqual(pair.ask(prompt).tokens, single_answer(prompt), (ours, theirs))

    def test_chunked_prefill(self):
        for layers_per_frame in (0, 1, 3):
            pair = self.pair(prefill={"batch_tokens": 48}, frame_tokens=64,
                             layers_per_frame=layers_per_frame)
            prompt = prompt_of(333, seed=layers_per_frame)
            self.assertEqual(pair.ask(prompt).tokens, single_answer(prompt))

    def test_what_the_prefix_cache_holds_is_not_sent(self):
        pair = self.pair(frame_tokens=16)  # whole frames are sent
        shared = prompt_of(160)
        first = pair.ask(shared + prompt_of(40, seed=1))
        prompt = shared + prompt_of(45, seed=2)
        second = pair.ask(prompt)
        self.assertEqual(second.tokens, single_answer(prompt))
        self.assertLess(second.params["kvserve"]["raw_bytes"],
                        0.4 * first.params["kvserve"]["raw_bytes"])

    def test_prefix_that_the_prefill_engine_had_cached(self):
        pair = self.pair()
        shared = prompt_of(160)
        pair.prefill_request(shared + [7, 8, 9])
        prompt = shared + prompt_of(45, seed=2)
        self.assertEqual(pair.ask(prompt).tokens, single_answer(prompt))

    def test_whole_prompt_cached_releases_the_ticket(self):
        pair = self.pair()
        prompt = prompt_of(161)
        pair.ask(prompt)
        again = pair.ask(prompt)
        self.assertEqual(again.tokens, single_answer(prompt))
        self.assertEqual(again.params["kvserve"]["reason"], "held_already")
        pair.wait_for_no_tickets()

    def test_many_at_once(self):
        pair = self.pair(frame_tokens=32, connections=4)
        prompts = [prompt_of(20 + 7 * n, seed=n) for n in range(24)]
        names = [pair.start(prompt) for prompt in prompts]
        pair.decode.run(*names)
        for name, prompt in zip(names, prompts):
            self.assertEqual(pair.decode.answers[name].tokens, single_answer(prompt))

    def test_all_dtypes(self):
        for dtype in (torch.float16, torch.float32):
            pair = self.pair(prefill={"dtype": dtype}, decode={"dtype": dtype})
            prompt = prompt_of(200)
            self.assertEqual(pair.ask(prompt).tokens, single_answer(prompt, dtype=dtype))

    def test_preempted_on_the_prefill_engine(self):
        # 12 blocks of 16: two requests of 130 tokens do not fit together.
        pair = self.pair(prefill={"blocks": 13, "batch_tokens": 48})
        prompts = [prompt_of(130, seed=n) for n in (1, 2)]
        for n, prompt in enumerate(prompts):
            pair.prefill.add(f"p{n}", prompt, 1,
                             {"do_remote_decode": True, "do_remote_prefill": False})
        pair.prefill.run()
        for n, prompt in enumerate(prompts):
            params = pair.prefill.answers[f"p{n}"].params
            pair.decode.add(f"d{n}", prompt, 4, params)
        pair.decode.run()
        for n, prompt in enumerate(prompts):
            self.assertEqual(pair.decode.answers[f"d{n}"].tokens, single_answer(prompt))

    def test_source_is_overwritten_as_soon_as_the_step_ends(self):
        """wait_for_save is the word that blocks have been read: under load, in chunks, and before
        anything is encoded or asked for."""
        pair = self.pair(frame_tokens=32, prefill={"batch_tokens": 100}, threads=2)

        def scribble():
            for cache in pair.prefill.caches.values():
                cache.fill_(float("nan"))

        pair.prefill.after_step = scribble
        prompts = [prompt_of(150 + n, seed=n) for n in range(6)]
        for n, prompt in enumerate(prompts):
            pair.prefill.add(f"p{n}", prompt, 1, {"do_remote_decode": True})
        pair.prefill.run()
        for n, (prompt, expected) in enumerate(zip(prompts, single_answers(prompts))):
            pair.decode.add(f"d{n}", prompt, 4, pair.prefill.answers[f"p{n}"].params)
            pair.decode.run(f"d{n}")
            self.assertEqual(pair.decode.answers[f"d{n}"].tokens, expected)

    def test_blocks_come_back_on_both_sides(self):
        pair = self.pair()
        for length in (5, 100, 200):
            pair.ask(prompt_of(length, seed=length))
        for engine in (pair.prefill, pair.decode):
            engine.drain()
            self.assertEqual(engine.free_blocks(), engine.free_at_start)


class EightBits(PairTest):
    """Caches of 8-bit floats pass byte for byte, whatever profile is the default."""

    FP8 = {"cache_dtype": "fp8", "block_tokens": 32}

    def test_passed_without_loss(self):
        pair = self.pair(LOSSY, prefill=self.FP8, decode=self.FP8)
        prompt = prompt_of(200)
        answer = pair.ask(prompt)
        self.assertEqual(answer.tokens, single_answer(prompt, **self.FP8))
        said = answer.params["kvserve"]
        self.assertEqual((said["profile"], said["reason"], said["error"]),
                         ("lossless", "8_bit_cache", None))

    def test_other_scales_are_refused(self):
        pair = self.pair(prefill=self.FP8, decode={**self.FP8, "scale": 0.5})
        prompt = prompt_of(100)
        answer = pair.ask(prompt)
        self.assertEqual(answer.tokens, single_answer(prompt, **self.FP8))
        self.assertRegex(answer.params["kvserve"]["error"], "KV scales")

    def test_scales_that_engines_find_by_themselves_are_refused_at_start(self):
        """They do not travel with the KV, so the same bytes would mean different values."""
        from kvserve.vllm.cache_layout import UnsupportedCacheError, describe_cache

        engine = StubEngine(None, **self.FP8)
        self.addCleanup(engine.close)
        engine.config.cache_config.calculate_kv_scales = True
        with self.assertRaisesRegex(UnsupportedCacheError, "calculate-kv-scales"):
            describe_cache(engine.config, engine.kv_config, engine.caches, "")

    def test_scales_between_the_elements_are_refused_at_start(self):
        from kvserve.vllm.cache_layout import UnsupportedCacheError, describe_cache

        engine = StubEngine(None, **self.FP8)
        self.addCleanup(engine.close)
        for dtype in ("fp8_per_token_head", "int8_per_token_head", "nvfp4"):
            engine.config.cache_config.cache_dtype = dtype
            with self.assertRaisesRegex(UnsupportedCacheError, f"{dtype}.* is not supported"):
                describe_cache(engine.config, engine.kv_config, engine.caches, "")


class Lossy(PairTest):
    def test_kv_is_close_and_smaller(self):
        pair = self.pair(LOSSY)
        prompt = prompt_of(300)
        name = pair.start(prompt, max_tokens=2)
        request = pair.decode.scheduler.requests[name]
        while not pair.decode.answers[name].tokens:
            pair.decode.step()
        received = pair.decode.kv(request, 299).float()
        exact = torch.stack([
            torch.stack([pair.decode.kv_of(layer, position, token)
                         for position, token in enumerate(prompt[:299])], dim=1)
            for layer in range(pair.decode.layers)]).float()
        pair.decode.run(name)
        noise = (received - exact).pow(2).mean().sqrt() / exact.pow(2).mean().sqrt()
        self.assertLess(noise, 0.35)
        self.assertGreater(noise, 0.01)
        said = pair.decode.answers[name].params["kvserve"]
        self.assertGreater(said["compression_ratio"], 3.0)
        self.assertEqual(said["profile"], kvserve.Profile(LOSSY).name)

    def test_frames_that_the_profile_cannot_code_go_exactly_between_compressed_ones(self):
        """One value that is no number: its frame alone keeps every bit."""
        pair = self.pair(LOSSY, frame_tokens=32)
        drawn = pair.prefill.kv_of

        def with_a_nan(layer, position, token):
            kv = drawn(layer, position, token)
            return kv.index_fill(2, torch.tensor([5]), torch.nan) \
                if (layer, position) == (1, 70) else kv

        pair.prefill.kv_of = with_a_nan
        prompt = prompt_of(200)
        name = pair.start(prompt, max_tokens=2)
        request = pair.decode.scheduler.requests[name]
        while not pair.decode.answers[name].tokens:
            pair.decode.step()
        received = pair.decode.kv(request, 199).view(torch.uint8)
        sent = torch.stack([
            torch.stack([with_a_nan(layer, position, token)
                         for position, token in enumerate(prompt[:199])], dim=1)
            for layer in range(pair.decode.layers)]).view(torch.uint8)
        same = (received == sent).all(dim=-1).all(dim=-1).all(dim=0).all(dim=0)  # [token]
        self.assertTrue(same[64:96].all())
        self.assertFalse(same[:64].any() or same[96:].any())

    def test_per_request_profile_and_reason(self):
        pair = self.pair("none")
        answer = pair.ask(prompt_of(100), params={"kvserve": {"profile": LOSSY}})
        self.assertEqual(answer.params["kvserve"]["reason"], "requested")
        self.assertGreater(answer.params["kvserve"]["compression_ratio"], 2)
        answer = pair.ask(prompt_of(100, 1), xargs={"kvserve_profile": "lossless"})
        self.assertEqual(answer.params["kvserve"]["profile"], "lossless")


class QualityClasses(PairTest):
    """A stricter request never gets KV that arrived lossy for another."""

    def test_stricter_request_does_not_see_lossy_blocks(self):
        pair = self.pair("lossless")
        prompt = prompt_of(200)
        lossy = pair.ask(prompt, params={"kvserve": {"profile": LOSSY}})
        exact = pair.ask(prompt)
        self.assertEqual(exact.tokens, single_answer(prompt))
        self.assertNotEqual(lossy.tokens, exact.tokens)
        self.assertGreater(exact.params["kvserve"]["raw_bytes"], 0)

    def test_local_request_does_not_see_lossy_blocks(self):
        pair = self.pair(LOSSY)
        prompt = prompt_of(200)
        pair.ask(prompt)
        pair.decode.add("local", prompt, 4)
        pair.decode.run("local")
        self.assertEqual(pair.decode.answers["local"].tokens, single_answer(prompt))

    def test_class_is_that_of_the_kv_and_not_what_a_client_says(self):
        pair = self.pair(LOSSY)
        for n, said in enumerate(("lossless", "none", "uniform|rans", "of another release")):
            prompt = prompt_of(200, n)
            params = pair.prefill_request(prompt)
            params["kvserve"]["profile"] = said
            pair.decode.add(said, prompt, 4, params)
            pair.decode.add(f"{said}, local", prompt, 4)
            pair.decode.run()
            for name in (said, f"{said}, local"):
                self.assertEqual(pair.decode.answers[name].tokens, single_answer(prompt), name)
            self.assertRegex(pair.decode.answers[said].params["kvserve"]["error"],
                             "was announced|unknown stage")

    def test_same_class_shares_blocks(self):
        pair = self.pair(LOSSY, frame_tokens=16)
        prompt = prompt_of(200)
        first = pair.ask(prompt)
        second = pair.ask(prompt)
        self.assertEqual(first.tokens, second.tokens)
        self.assertLess(second.params["kvserve"]["raw_bytes"],
                        0.2 * first.params["kvserve"]["raw_bytes"])

    def test_what_is_computed_on_a_lossy_prefix_carries_its_class(self):
        pair = self.pair(LOSSY)
        prompt = prompt_of(150)
        answer = pair.ask(prompt, max_tokens=40)  # fills blocks of its own
        longer = prompt + answer.tokens
        pair.decode.add("local", longer, 2)
        pair.decode.run("local")
        self.assertEqual(pair.decode.answers["local"].tokens, single_answer(longer, 2))

    def test_ten_turns_of_a_chat_are_coded_once(self):
        pair = self.pair(LOSSY, frame_tokens=32, prefill={"blocks": 128},
                         decode={"blocks": 128})
        history: list[int] = []
        sent = []
        for turn in range(10):
            history += prompt_of(40, seed=turn)
            answer = pair.ask(list(history), max_tokens=24)
            sent.append(answer.params["kvserve"]["raw_bytes"])
            history += answer.tokens
        # Each turn sends its own part alone: what the decode engine holds is not coded again.
        self.assertLess(max(sent[1:]), 2.0 * sent[0])

    def test_tenants_stay_apart(self):
        pair = self.pair()
        prompt = prompt_of(150)
        pair.ask(prompt, salt="a")
        other = pair.ask(prompt, salt="b")
        self.assertEqual(other.tokens, single_answer(prompt))
        self.assertGreater(other.params["kvserve"]["raw_bytes"], 0)


class Modes(PairTest):
    def test_observing(self):
        pair = self.pair(LOSSY, mode="observe")
        prompt = prompt_of(150)
        answer = pair.ask(prompt)
        said = answer.params["kvserve"]
        self.assertEqual(answer.tokens, single_answer(prompt))
        self.assertEqual((said["profile"], said["reason"]), ("none", "observe"))
        self.assertIn("hadamard", said["would_be"])


if __name__ == "__main__":
    unittest.main()
