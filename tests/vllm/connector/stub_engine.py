"""An engine of vLLM without a model: the real scheduler, the real connector and a real KV cache;
only the forward pass is ours. It writes KV that depends on token, position, layer and head, and
samples a token that depends on every byte of KV it attends to: one wrong byte gives
another answer. Tensor-parallel ranks are connectors with caches of their own in this one process."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    unify_hybrid_kv_cache_specs,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

LAYERS, HEADS, DIM, VOCABULARY = 4, 2, 32, 1000


def write_model_config(folder: str, layers: int, heads: int, window: int | None = None) -> None:
    """`window`: of every other layer."""
    attention_heads = max(8, heads)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": attention_heads * DIM, "intermediate_size": 64,
        "num_hidden_layers": layers, "num_attention_heads": attention_heads,
        "num_key_value_heads": heads, "head_dim": DIM, "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "bos_token_id": 1, "eos_token_id": 2,
    }
    if window is not None:
        config["sliding_window"] = window
        config["layer_types"] = [("full_attention", "sliding_attention")[layer % 2]
                                 for layer in range(layers)]
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


def transfer_config(role: str, policy: str = "recompute", **extra: Any) -> KVTransferConfig:
    return KVTransferConfig(kv_connector="KVServeConnector",
                            kv_connector_module_path="kvserve.vllm.connector", kv_role=role,
                            kv_connector_extra_config=extra, kv_load_failure_policy=policy)


@dataclass
class Answer:
    """What became of a request."""

    tokens: list[int] = field(default_factory=list)
    finished: bool = False
    reason: str | None = None
    params: dict[str, Any] | None = None


class StubEngine:
    """`transfer` None: a single engine without connector."""

    def __init__(self, transfer: KVTransferConfig | None, *, blocks: int = 64,
                 block_tokens: int = 16, batch_tokens: int = 512, layers: int = LAYERS,
                 heads: int = HEADS, dtype: torch.dtype = torch.bfloat16,
                 cache_dtype: str = "auto", scale: float = 1.0, ranks: int = 1,
                 window: int | None = None, kept_windows: bool = False, draft_layers: int = 0,
                 revision: str | None = None):
        """cache_dtype "fp8": 8-bit floats with this static scale in every layer. heads: of KV, over
        all ranks. window: all layers attend to so many tokens; kept_windows: only every other one,
        and vLLM keeps all tokens of them. draft_layers: more layers, those of a draft model."""
        init_none_hash(sha256)
        self._element = torch.float8_e4m3fn if cache_dtype == "fp8" else dtype
        self.heads, self.ranks, self.block_tokens, self.dtype = heads, ranks, block_tokens, dtype
        self.layers = layers + draft_layers
        self._window = None if kept_windows else window
        self._folder = tempfile.TemporaryDirectory()
        write_model_config(self._folder.name, layers, heads, window if kept_windows else None)
        cache = CacheConfig(block_size=block_tokens, enable_prefix_caching=True,
                            cache_dtype=cache_dtype)
        cache.num_gpu_blocks = blocks
        config = VllmConfig(
            model_config=ModelConfig(model=self._folder.name, skip_tokenizer_init=True,
                                     dtype=dtype, max_model_len=4096, enforce_eager=True,
                                     revision=revision),
            cache_config=cache, device_config=DeviceConfig("cpu"),
            parallel_config=ParallelConfig(tensor_parallel_size=ranks), kv_transfer_config=transfer,
            scheduler_config=SchedulerConfig(max_num_seqs=32, max_num_batched_tokens=batch_tokens,
                                             max_model_len=4096, is_encoder_decoder=False,
                                             enable_chunked_prefill=True))
        self.config = config
        self.names = [f"model.layers.{layer}.self_attn.attn" for layer in range(self.layers)]
        for name in self.names:
            config.compilation_config.static_forward_context[name] = SimpleNamespace(
                _k_scale_float=scale, _v_scale_float=scale)
        stored = torch.uint8 if cache_dtype == "fp8" else dtype
        self.kv_config = KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[],
            kv_cache_groups=self._groups(window, kept_windows, stored))
        shape = (blocks, self.rank_heads, block_tokens, 2 * DIM)
        self.rank_caches = [{name: torch.zeros(shape, dtype=stored) for name in self.names}
                            for _ in range(ranks)]
        self.caches = self.rank_caches[0]
        self.scheduler = Scheduler(
            vllm_config=config, kv_cache_config=self.kv_config, block_size=block_tokens,
            hash_block_size=block_tokens, log_stats=True,
            structured_output_manager=StructuredOutputManager(config))
        self._hasher = get_request_block_hasher(block_tokens, sha256)
        self.workers: list[Any] = []
        if transfer is not None:
            self._start_workers()
        self.worker = self.workers[0] if self.workers else None
        self._aggregator = KVOutputAggregator(ranks)
        self.answers: dict[str, Answer] = {}
        self.free_at_start = self.free_blocks()
        self.stats: list[Any] = []
        self.prefilled_tokens = 0

    @property
    def rank_heads(self) -> int:
        """With more ranks than heads every head is on several."""
        return max(1, self.heads // self.ranks)

    def _groups(self, window: int | None, kept: bool,
                stored: torch.dtype) -> list[KVCacheGroupSpec]:
        shape = {"block_size": self.block_tokens, "num_kv_heads": self.rank_heads,
                 "head_size": DIM, "dtype": stored}
        if window is None:
            return [KVCacheGroupSpec(self.names, FullAttentionSpec(**shape))]
        if not kept:
            return [KVCacheGroupSpec(self.names, SlidingWindowSpec(**shape, sliding_window=window))]
        # What vLLM makes of a hybrid model without the hybrid KV cache manager.
        specs = {name: SlidingWindowSpec(**shape, sliding_window=window) if index % 2
                 else FullAttentionSpec(**shape) for index, name in enumerate(self.names)}
        unify_hybrid_kv_cache_specs(specs)
        return [KVCacheGroupSpec(self.names, FullAttentionSpec.merge(list(specs.values())))]

    def _start_workers(self) -> None:
        from kvserve.vllm.connector import KVServeConnector

        handshakes = {}
        for rank, caches in enumerate(self.rank_caches):
            own = copy.copy(self.config)
            own.parallel_config = copy.copy(self.config.parallel_config)
            own.parallel_config.rank = rank
            worker = KVServeConnector(own, KVConnectorRole.WORKER, self.kv_config)
            worker.register_kv_caches(caches)
            if (handshake := worker.get_handshake_metadata()) is not None:
                handshakes[0, rank] = handshake
            self.workers.append(worker)
        # As vLLM does, also where no worker has said anything.
        self.scheduler.connector.set_xfer_handshake_metadata_pp_aware(handshakes)

    # Requests.

    def add(self, request_id: str, prompt: list[int], max_tokens: int = 1,
            params: dict[str, Any] | None = None, xargs: dict[str, Any] | None = None,
            salt: str | None = None) -> None:
        extra = dict(xargs or {})
        if params is not None:
            extra["kv_transfer_params"] = params
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True,
                                  extra_args=extra or None)
        self.answers[request_id] = Answer()
        self.scheduler.add_request(Request(
            request_id=request_id, prompt_token_ids=list(prompt), sampling_params=sampling,
            pooling_params=None, cache_salt=salt, block_hasher=self._hasher))

    def abort(self, request_id: str) -> None:
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        self.answers[request_id].finished = True
        self.answers[request_id].reason = "abort"

    def run(self, *request_ids: str) -> None:
        """Steps until these requests (all, when none is named) have ended."""
        wanted = request_ids or tuple(self.answers)
        step_until(lambda: all(self.answers[name].finished for name in wanted), self,
                   what=f"end of {wanted}")

    def drain(self) -> None:
        """Steps until the scheduler has nothing left, delayed frees included."""
        step_until(lambda: not self.scheduler.has_requests(), self, what="end of all requests")

    def free_blocks(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    # One step of the engine, in the order in which vLLM's model runner calls the connector.

    def step(self) -> None:
        scheduled = self.scheduler.schedule()
        self.before_forward(scheduled)
        if self.worker is None:
            output = self._forward(scheduled)
        else:
            output = self._step_with_connector(scheduled)
        for outputs in self.scheduler.update_from_output(scheduled, output).values():
            for one in outputs.outputs:
                answer = self.answers[one.request_id]
                answer.tokens += one.new_token_ids
                if one.finish_reason is not None:
                    answer.finished, answer.reason = True, str(one.finish_reason)
                    answer.params = one.kv_transfer_params

    def before_forward(self, scheduled: Any) -> None:
        """For tests that interfere."""

    def after_step(self) -> None:
        """Likewise: the connector has said that all blocks may be overwritten."""

    def _step_with_connector(self, scheduled: Any) -> ModelRunnerOutput:
        for worker in self.workers:
            worker.bind_connector_metadata(scheduled.kv_connector_metadata)
        output = self._forward(scheduled)
        for worker in self.workers:
            worker.start_load_kv(None)
            worker.wait_for_save()
        self.after_step()
        told = self._aggregator.aggregate([
            dataclasses.replace(output, kv_connector_output=self._told(worker, scheduled))
            for worker in self.workers])
        if told.kv_connector_output.kv_connector_stats is not None:
            self.stats.append(told.kv_connector_output.kv_connector_stats)
        return told

    def _told(self, worker: Any, scheduled: Any) -> KVConnectorOutput:
        told = KVConnectorOutput()
        results = worker.get_transfer_results(scheduled.finished_req_ids)
        told.finished_sending = results.finished_sending
        told.finished_recving = results.finished_recving
        told.failed_recving = results.failed_recving
        told.invalid_block_ids = worker.get_block_ids_with_load_errors()
        told.kv_connector_stats = worker.get_kv_connector_stats()
        told.kv_connector_worker_meta = worker.build_connector_worker_meta()
        worker.clear_connector_metadata()
        return told

    def _forward(self, scheduled: Any) -> ModelRunnerOutput:
        requests = [(name, self.scheduler.requests[name])
                    for name in scheduled.num_scheduled_tokens]
        for layer, name in enumerate(self.names):
            for request_id, request in requests:
                count = scheduled.num_scheduled_tokens[request_id]
                self._write(layer, request, request.num_computed_tokens - count, count)
            for worker, caches in zip(self.workers, self.rank_caches):
                if requests:
                    worker.save_kv_layer(name, caches[name], None)
        sampled = []
        for request_id, request in requests:
            complete = request.num_computed_tokens >= request.num_tokens
            sampled.append([self._sample(request)] if complete else [])
        return ModelRunnerOutput(
            req_ids=[name for name, _ in requests],
            req_id_to_index={name: index for index, (name, _) in enumerate(requests)},
            sampled_token_ids=sampled, prompt_logprobs_dict={}, pooler_output=[])

    def _write(self, layer: int, request: Request, begin: int, count: int) -> None:
        self.prefilled_tokens += count if count > 1 else 0
        (table,) = self.scheduler.kv_cache_manager.get_block_ids(request.request_id)
        for position in range(begin, begin + count):
            block, slot = table[position // self.block_tokens], position % self.block_tokens
            kv = self.kv_of(layer, position, request.all_token_ids[position])
            for rank in range(self.ranks):
                first = rank * self.heads // self.ranks
                keys, values = kv[:, first:first + self.rank_heads]
                key_block, value_block = self.planes(layer, block, rank)
                key_block[:, :, slot] = keys
                value_block[:, slot, :] = values

    def kv_of(self, layer: int, position: int, token: int) -> torch.Tensor:
        """[2, head, dim] of all ranks, as the cache stores it."""
        drawn = _drawn((layer * 8192 + position) * VOCABULARY + token, self.heads, self._element)
        return drawn.view(self.caches[self.names[0]].dtype)

    def planes(self, layer: int, block: int, rank: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of one block of one rank: keys [head, dim, slot], values [head, slot, dim]."""
        heads = self.rank_heads
        flat = self.rank_caches[rank][self.names[layer]][block].view(
            heads, 2, self.block_tokens * DIM)
        return (flat[:, 0].view(heads, DIM, self.block_tokens),
                flat[:, 1].view(heads, self.block_tokens, DIM))

    def kv(self, request: Request, tokens: int, replica: int = 0) -> torch.Tensor:
        """[layer, 2, token, head, dim] of the request's first tokens, as the caches have them. Of
        heads that several ranks have, those of one."""
        (table,) = self.scheduler.kv_cache_manager.get_block_ids(request.request_id)
        replicas = max(1, self.ranks // self.heads)
        parts = [torch.stack([self._layer_kv(layer, table, tokens, rank)
                              for layer in range(self.layers)])
                 for rank in range(replica, self.ranks, replicas)]
        return torch.cat(parts, dim=3)

    def _layer_kv(self, layer: int, table: list[int], tokens: int, rank: int) -> torch.Tensor:
        blocks = [self.planes(layer, block, rank) for block in table]
        keys = torch.cat([keys.permute(2, 0, 1) for keys, _ in blocks])[:tokens]
        values = torch.cat([values.permute(1, 0, 2) for _, values in blocks])[:tokens]
        return torch.stack((keys, values))

    def _sample(self, request: Request) -> int:
        tokens = request.num_computed_tokens
        first = max(0, tokens - self._window) if self._window else 0
        seen = {self.kv(request, tokens, replica)[:, :, first:].contiguous().view(torch.uint8)
                .numpy().tobytes() for replica in range(max(1, self.ranks // self.heads))}
        digest = hashlib.sha256(b"".join(sorted(seen))).digest()
        return 3 + int.from_bytes(digest[:4], "little") % (VOCABULARY - 3)

    def close(self) -> None:
        for worker in self.workers:
            worker.shutdown()
        self.scheduler.shutdown()
        self._folder.cleanup()


def step_until(condition: Callable[[], bool], *engines: StubEngine, what: str) -> None:
    """By time, since idle steps are quick and a busy machine keeps transfers waiting."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}")
        for engine in engines:
            engine.step()


class Pair:
    """A prefill and a decode engine, and what a router does between them."""

    _numbers = itertools.count(1)  # engines may be in several pairs

    def __init__(self, prefill: StubEngine, decode: StubEngine):
        self.prefill, self.decode = prefill, decode
        self._count = 0

    def prefill_request(self, prompt: list[int], **options: Any) -> dict[str, Any] | None:
        """Runs the prompt on the prefill engine; its kv_transfer_params."""
        self._count = next(self._numbers)
        name = f"p{self._count}"
        params = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
                  "remote_block_ids": None, "remote_host": None, "remote_port": None,
                  **options.pop("params", {})}
        self.prefill.add(name, prompt, 1, params, **options)
        self.prefill.run(name)
        return self.prefill.answers[name].params

    def start(self, prompt: list[int], max_tokens: int = 4, **options: Any) -> str:
        """Prefills, and hands the request to the decode engine, which has not stepped yet."""
        params = self.prefill_request(prompt, **options)
        name = f"d{self._count}"
        self.decode.add(name, prompt, max_tokens, params, salt=options.get("salt"))
        return name

    def ask(self, prompt: list[int], max_tokens: int = 4, **options: Any) -> Answer:
        name = self.start(prompt, max_tokens, **options)
        self.decode.run(name)
        return self.decode.answers[name]

    def wait_for_no_tickets(self) -> None:
        """Steps until the last one has ended, and once more for its report."""
        sender = self.prefill.worker._worker._transport.sender
        step_until(lambda: sender.open_tickets == 0, self.prefill, self.decode, what="no tickets")
        self.prefill.step()

    def close(self) -> None:
        self.prefill.close()
        self.decode.close()


@functools.lru_cache(maxsize=1 << 15)
def _drawn(seed: int, heads: int, dtype: torch.dtype) -> torch.Tensor:
    draw = torch.randn((2, heads, DIM), generator=torch.Generator().manual_seed(seed))
    return draw.to(dtype)


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return torch.randint(3, VOCABULARY, (length,),
                         generator=torch.Generator().manual_seed(seed)).tolist()


def single_answers(prompts: list[list[int]], max_tokens: int = 4,
                   **options: Any) -> list[list[int]]:
    """What one engine without a connector answers."""
    engine = StubEngine(None, **options)
    for number, prompt in enumerate(prompts):
        engine.add(str(number), prompt, max_tokens)
        engine.run(str(number))
    engine.close()
    return [engine.answers[str(number)].tokens for number in range(len(prompts))]


def single_answer(prompt: list[int], max_tokens: int = 4, **options: Any) -> list[int]:
    return single_answers([prompt], max_tokens, **options)[0]
