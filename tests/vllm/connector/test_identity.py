"""Whatever changes what KV means keeps it from being taken for other KV."""

import unittest
from types import SimpleNamespace

import torch
from stub_engine import Pair, StubEngine, prompt_of, transfer_config
from test_pair import LOSSY, PairTest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.request import Request

from kvserve.vllm.cache_layout import describe_cache, fact_that_differs
from kvserve.vllm.decision import context_of
from kvserve.vllm.scheduler import salt_by_class


class Keys(unittest.TestCase):
    """The same tokens: every difference but the block size, across which KV is moved, shows in what
    sender and receiver must agree on, or in the hashes of the decode engine's prefix cache."""

    FP8 = {"cache_dtype": "fp8", "block_tokens": 32}

    def fingerprint(self, model_id: str = "", **options) -> bytes:
        engine = StubEngine(None, **options)
        self.addCleanup(engine.close)
        return describe_cache(engine.config, engine.kv_config, engine.caches, model_id).fingerprint

    def test_models(self):
        variants = [{}, {"dtype": torch.float16}, {"dtype": torch.float32}, {"layers": 5},
                    {"draft_layers": 1}, {"heads": 4}, {"revision": "other"},
                    {"model_id": "a tune"}, self.FP8, {**self.FP8, "scale": 0.5}]
        prints = [self.fingerprint(**options) for options in variants]
        self.assertEqual(len(set(prints)), len(variants))
        self.assertEqual(self.fingerprint(), prints[0])

    def test_block_sizes_are_no_difference_between_engines(self):
        self.assertEqual(self.fingerprint(), self.fingerprint(block_tokens=32))

    def request(self, block_tokens: int = 16, profile: str = "",
                salt: str | None = None) -> Request:
        request = Request(
            request_id="r", prompt_token_ids=prompt_of(128), pooling_params=None,
            sampling_params=SamplingParams(max_tokens=1), cache_salt=salt,
            block_hasher=get_request_block_hasher(block_tokens, sha256))
        if profile:
            salt_by_class(request, profile)
        return request

    def test_blocks_of_the_prefix_cache(self):
        """Exact KV has the hashes that vLLM gives; each lossy profile has its own, per tenant."""
        StubEngine(None).close()  # seeds vLLM's hashes
        requests = [self.request(), self.request(32), self.request(salt="tenant")]
        requests += [self.request(profile=profile, salt=salt) for profile in (LOSSY, "other")
                     for salt in (None, "tenant")]
        self.assertEqual(len({request.block_hashes[0] for request in requests}), len(requests))
        self.assertEqual(self.request().block_hashes, requests[0].block_hashes)

    def test_contexts_of_adapter_images_and_tenants(self):
        def request(**fields):
            plain = {"lora_request": None, "mm_features": [], "cache_salt": None}
            return SimpleNamespace(**{**plain, **fields})

        def image(identifier, offset=0):
            return SimpleNamespace(identifier=identifier,
                                   mm_position=SimpleNamespace(offset=offset, length=4))

        # Hashes of images count in full, not by their first bytes.
        contexts = [context_of(one) for one in (
            request(), request(lora_request=SimpleNamespace(lora_name="a")),
            request(lora_request=SimpleNamespace(lora_name="b")), request(cache_salt="tenant"),
            request(mm_features=[image("00" * 32)]),
            request(mm_features=[image("00" * 31 + "01")]),
            request(mm_features=[image("00" * 32, 8)]))]
        self.assertEqual(len(set(contexts)), len(contexts))
        self.assertEqual(contexts[0], "")


class Facts(PairTest):
    def test_the_fact_that_differs_is_named_with_both_values(self):
        theirs = {"KV dtype": "bfloat16", "model_id": "a"}
        self.assertEqual(fact_that_differs(theirs, dict(theirs)), "")
        self.assertRegex(fact_that_differs(theirs, {**theirs, "model_id": "b"}),
                         "in model_id: 'a' on the prefill engine, 'b' here")
        self.assertRegex(fact_that_differs({}, theirs), "in KV dtype: None")
        self.assertLess(len(fact_that_differs({"KV dtype": "x" * 10000}, theirs)), 1000)

    def test_engines_of_other_facts_refuse_each_other_in_the_handshake_too(self):
        """A router may lose or forge what the prefill engine has said."""
        pair = Pair(StubEngine(transfer_config("kv_producer", model_id="one")),
                    StubEngine(transfer_config("kv_consumer", "recompute", model_id="two")))
        self.addCleanup(pair.close)
        prompt = prompt_of(60)
        params = pair.prefill_request(prompt)
        params["kvserve"]["facts"]["model_id"] = "two"
        pair.decode.add("d", prompt, 4, params)
        pair.decode.run("d")
        self.assertRegex(pair.decode.answers["d"].params["kvserve"]["error"], "model fingerprint")


if __name__ == "__main__":
    unittest.main()
