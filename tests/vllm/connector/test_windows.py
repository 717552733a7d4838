"""Models with sliding-window layers: what is sent, what it costs, and what is refused at start."""

import unittest

import torch
from stub_engine import (
    DIM,
    HEADS,
    LAYERS,
    StubEngine,
    prompt_of,
    single_answers,
    transfer_config,
)
from test_pair import PairTest
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

from kvserve.vllm.cache_layout import UnsupportedCacheError, layer_specs, window_cost

WINDOW = 128
LAYER_TOKEN_BYTES = 2 * HEADS * DIM * 2


class AllLayersAreWindows(PairTest):
    """The engine drops blocks that have left the window, and gives them to other requests."""

    ENGINE = {"window": WINDOW, "blocks": 80}

    def windowed(self, **options):
        pair = self.pair(prefill={**self.ENGINE, **options.pop("prefill", {})},
                         decode={**self.ENGINE, **options.pop("decode", {})}, **options)
        for cache in pair.decode.caches.values():
            cache.fill_(torch.nan)  # what is read without having been sent shows
        return pair

    def ask_side_by_side(self, pair, prompts: list[list[int]]) -> list[dict]:
        names = [pair.start(prompt) for prompt in prompts]
        pair.decode.run(*names)
        for name, expected in zip(names, single_answers(prompts, window=WINDOW)):
            self.assertEqual(pair.decode.answers[name].tokens, expected)
        return [pair.decode.answers[name].params["kvserve"] for name in names]

    def test_two_requests_side_by_side_get_their_window_in_their_own_slots(self):
        pair = self.windowed(frame_tokens=16)
        prompts = [prompt_of(300, seed) for seed in range(2)]
        for said in self.ask_side_by_side(pair, prompts):
            self.assertIsNone(said["error"])
            # The token that the decode engine computes attends to the 127 before it.
            self.assertEqual(said["raw_bytes"], (WINDOW - 1) * LAYERS * LAYER_TOKEN_BYTES)
        for engine in (pair.prefill, pair.decode):
            engine.drain()
            self.assertEqual(engine.free_blocks(), engine.free_at_start)

    def test_many_in_chunks_over_other_block_sizes(self):
        pair = self.windowed(prefill={"batch_tokens": 48}, decode={"block_tokens": 32})
        prompts = [prompt_of(length, length) for length in (20, 127, 128, 129, 200, 257)]
        for said in self.ask_side_by_side(pair, prompts):
            self.assertIsNone(said["error"])

    def test_prefixes_in_either_cache(self):
        pair = self.windowed(frame_tokens=16)
        shared = prompt_of(320)
        for end in (300, 310, 320):
            self.ask_side_by_side(pair, [shared[:end]])
        pair.prefill_request(shared + prompt_of(50, 1))
        self.ask_side_by_side(pair, [shared + prompt_of(60, 1), shared + prompt_of(20, 2)])


class WindowsBesideFullAttention(PairTest):
    """Without the hybrid KV cache manager vLLM keeps all tokens of window layers."""

    ENGINE = {"window": WINDOW, "kept_windows": True}

    def test_all_tokens_arrive(self):
        pair = self.pair(prefill=self.ENGINE, decode=self.ENGINE)
        prompts = [prompt_of(300, seed) for seed in range(2)]
        names = [pair.start(prompt) for prompt in prompts]
        pair.decode.run(*names)
        for name, expected in zip(names, single_answers(prompts)):
            self.assertEqual(pair.decode.answers[name].tokens, expected)
            said = pair.decode.answers[name].params["kvserve"]
            self.assertEqual(said["raw_bytes"], 299 * LAYERS * LAYER_TOKEN_BYTES)

    def test_cost_in_memory_and_on_the_wire_is_said_at_start(self):
        with self.assertLogs("vllm.kvserve.vllm.connector", "WARNING") as log:
            engine = StubEngine(transfer_config("kv_consumer"), **self.ENGINE)
        engine.close()
        self.assertRegex("\n".join(log.output),
                         f"{LAYERS // 2} sliding-window layers keep and send all tokens.*hybrid KV "
                         f"cache manager.* {LAYERS // 2 * LAYER_TOKEN_BYTES} bytes more of KV cache"
                         ".*on the wire")

    def test_vllm_turns_its_hybrid_manager_off_for_this_connector(self):
        self.assertFalse(KVConnectorFactory.supports_hma_config(transfer_config("kv_both")))

    def test_models_without_windows_or_with_windows_alone_cost_nothing(self):
        for options in ({}, {"window": WINDOW}):
            engine = StubEngine(None, **options)
            self.addCleanup(engine.close)
            self.assertEqual(window_cost(engine.config, engine.kv_config), "")

    def test_layers_of_unknown_kinds_are_an_upper_bound(self):
        engine = StubEngine(None, **self.ENGINE)
        self.addCleanup(engine.close)
        engine.config.model_config.hf_text_config.layer_types = None
        self.assertRegex(window_cost(engine.config, engine.kv_config),
                         f"up to {LAYERS} sliding-window layers")


class Refused(unittest.TestCase):
    SHAPE = {"block_size": 16, "num_kv_heads": 2, "head_size": 64, "dtype": torch.bfloat16}

    def expect(self, reason: str, *specs) -> None:
        config = KVCacheConfig(num_blocks=4, kv_cache_tensors=[], kv_cache_groups=[
            KVCacheGroupSpec([f"model.layers.{index}.self_attn.attn"], spec)
            for index, spec in enumerate(specs)])
        with self.assertRaisesRegex(UnsupportedCacheError, reason):
            layer_specs(config)

    def test_groups_of_the_hybrid_manager(self):
        self.expect("several groups.*--disable-hybrid-kv-cache-manager",
                    FullAttentionSpec(**self.SHAPE),
                    SlidingWindowSpec(**self.SHAPE, sliding_window=WINDOW))

    def test_latent_caches(self):
        self.expect(r"layers\.0\..*latent", MLAAttentionSpec(**self.SHAPE | {"num_kv_heads": 1}))

    def test_states_that_are_no_attention(self):
        self.expect(r"layers\.0\..*Mamba state", MambaSpec(
            block_size=16, shapes=((4, 4),), dtypes=(torch.float32,)))

    def test_keys_and_values_of_other_sizes(self):
        self.expect("keys of 64 and values of 32", FullAttentionSpec(**self.SHAPE, head_size_v=32))


if __name__ == "__main__":
    unittest.main()
