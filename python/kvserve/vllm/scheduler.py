"""The scheduler's half of the connector: which request's KV is offered, loaded or released.

Prefill engine: a request with do_remote_decode gets a ticket and its one decision; each step's new
tokens are staged; when it finishes, kv_transfer_params tell the decode engine where its KV is.
Decode engine: a request with do_remote_prefill waits (asynchronously) for the KV of all its tokens
but the last, less what the prefix cache holds.

Blocks with lossy KV have the tokens of exact ones. So that no request is served a lower quality
than its own, the hashes of a request's blocks are salted with its quality class before the first
lookup: lossy blocks are found by requests of the same class alone, and what is computed on top of
them carries the class. Exact KV (none, lossless, computed here) has no salt.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger
from vllm.v1.request import RequestStatus

from kvserve import KVServeError
from kvserve.vllm.decision import Decider, Decision, class_of, context_of
from kvserve.vllm.messages import (
    FetchWork,
    KVServeMetadata,
    KVServeWorkerMetadata,
    OfferStart,
    RemoteKv,
    StageWork,
    WorkerAddress,
    add_report,
)
from kvserve.vllm.stats import KVServeStats

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = init_logger(f"vllm.{__name__}")  # the root of what vLLM shows

_FINISHED_NORMALLY = (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)


@dataclass
class _Offer:
    """A request on the prefill engine whose KV another engine will take."""

    ticket: str
    decision: Decision
    tokens: list[int]
    context: str
    staged: int = 0  # tokens given to the workers


@dataclass
class _Load:
    """A request on the decode engine that was told where its KV is."""

    remote: RemoteKv | None
    error: str  # why its KV cannot be loaded
    context: str
    report: dict[str, Any] | None = None


def sent_tokens(num_prompt_tokens: int) -> int:
    """How many tokens' KV is sent for a prompt: all but the last, which the decode engine computes
    itself to sample from."""
    return max(0, num_prompt_tokens - 1)


class SchedulerHalf:
    """Runs in the engine core's process; never called by two threads at once."""

    def __init__(self, decider: Decider, engine_id: str, tp_size: int, producer: bool,
                 consumer: bool):
        self._decider = decider
        self._engine_id = engine_id
        self._tp_size = tp_size
        self._producer = producer
        self._consumer = consumer
        self._addresses: list[str] = []
        self._facts: dict[str, str] = {}
        self._cache_manager: KVCacheManager | None = None
        self._offers: dict[str, _Offer] = {}
        self._refused: dict[str, str] = {}  # requests that ask for what cannot be, until loaded
        self._loads: dict[str, _Load] = {}
        self._work = KVServeMetadata()
        self._stats = KVServeStats()

    # What the engine tells once, at start.

    def bind_kv_cache_manager(self, manager: KVCacheManager) -> None:
        self._cache_manager = manager

    def set_workers(self, workers: list[WorkerAddress]) -> None:
        """[tensor-parallel rank] of this engine's senders; none on a pure decode engine."""
        self._addresses = [worker.address for worker in workers]
        self._facts = workers[0].facts if workers else {}

    # Per request.

    def on_new_request(self, request: Request) -> None:
        params = request.kv_transfer_params
        if not isinstance(params, dict):
            return
        if params.get("do_remote_decode") and self._producer:
            self._begin_offer(request, params)
        elif params.get("do_remote_prefill") and self._consumer:
            self._begin_load(request, params)

    def get_num_new_matched_tokens(self, request: Request,
                                   num_computed_tokens: int) -> tuple[int, bool]:
        wanted = self._tokens_to_load(request) - num_computed_tokens
        return (wanted, True) if wanted > 0 else (0, False)

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks,
                                 num_external_tokens: int) -> None:
        if request.request_id in self._refused:
            reason = self._refused.pop(request.request_id)
            if num_external_tokens > 0:
                self._work.failing[request.request_id] = reason
            return
        params = request.kv_transfer_params
        load = self._loads.get(request.request_id)
        if load is None or not params.get("do_remote_prefill"):
            return
        params["do_remote_prefill"] = False  # once: after a preemption the KV is computed here
        if load.error:
            if num_external_tokens > 0:
                self._work.failing[request.request_id] = load.error
            if load.remote is not None:
                self._release(load.remote)
            return
        assert load.remote is not None
        if num_external_tokens == 0:
            self._release(load.remote)
            return
        tokens = list(request.prompt_token_ids[: load.remote.tokens])
        self._work.fetches.append(FetchWork(
            request_id=request.request_id, ticket=load.remote.ticket, profile=load.remote.profile,
            addresses=load.remote.addresses, facts=load.remote.facts, tokens=tokens,
            context=load.context,
            begin=len(tokens) - num_external_tokens,
            tables=[list(group) for group in blocks.get_block_ids()]))

    def build_connector_meta(self, scheduled: SchedulerOutput) -> KVServeMetadata:
        for new in scheduled.scheduled_new_reqs:
            self._stage(new.req_id, new.num_computed_tokens, scheduled)
        cached = scheduled.scheduled_cached_reqs
        for request_id, computed in zip(cached.req_ids, cached.num_computed_tokens):
            self._stage(request_id, computed, scheduled)
        work, self._work = self._work, KVServeMetadata()
        return work

    def request_finished(self, request: Request) -> dict[str, Any] | None:
        """What the response says of the transfer; on the prefill engine also where the KV is. No
        block is held back: workers have read them in the step that computed them."""
        self._refused.pop(request.request_id, None)
        if (offer := self._offers.pop(request.request_id, None)) is not None:
            return self._finish_offer(request, offer)
        load = self._loads.pop(request.request_id, None)
        if load is None:
            return None
        if request.kv_transfer_params.get("do_remote_prefill") and load.remote is not None:
            self._release(load.remote)  # ended before it was scheduled
        return {"kvserve": self._load_report(load)}

    def update_connector_output(self, output: KVConnectorOutput) -> None:
        meta = output.kv_connector_worker_meta
        if not isinstance(meta, KVServeWorkerMetadata):
            return
        for request_id, report in meta.loads.items():
            load = self._loads.get(request_id)
            if load is None:
                continue
            if load.report is None:
                load.report = report
            else:
                add_report(load.report, report)

    def take_stats(self) -> KVServeStats | None:
        if self._stats.is_empty():
            return None
        stats, self._stats = self._stats, KVServeStats()
        return stats

    # Prefill engine.

    def _begin_offer(self, request: Request, params: dict[str, Any]) -> None:
        xargs = request.sampling_params.extra_args if request.sampling_params else None
        decision = self._decider.decide(params, xargs)
        self._stats.count_decision(decision.reason, decision.profile)
        if decision.error:
            logger.warning("request %s: %s", request.request_id, decision.error)
            self._refused[request.request_id] = decision.error
        tokens = sent_tokens(request.num_prompt_tokens)
        if tokens == 0 or request.prompt_token_ids is None:
            return  # nothing to send: the decode engine computes it
        self._offers[request.request_id] = _Offer(
            ticket=f"{self._engine_id}/{uuid.uuid4().hex}", decision=decision,
            tokens=list(request.prompt_token_ids[:tokens]), context=context_of(request))

    def _stage(self, request_id: str, computed: int, scheduled: SchedulerOutput) -> None:
        offer = self._offers.get(request_id)
        if offer is None:
            return
        end = min(computed + scheduled.num_scheduled_tokens[request_id], len(offer.tokens))
        if end <= offer.staged:
            return  # computed again after a preemption; what was staged is as good
        if offer.staged == 0:
            self._work.offers.append(OfferStart(offer.ticket, offer.decision.profile, offer.tokens,
                                                offer.context))
        assert self._cache_manager is not None
        tables = [list(group) for group in self._cache_manager.get_block_ids(request_id)]
        self._work.stages.append(StageWork(offer.ticket, offer.staged, end, tables))
        offer.staged = end

    def _finish_offer(self, request: Request, offer: _Offer) -> dict[str, Any]:
        decision = offer.decision
        params: dict[str, Any] = {
            "do_remote_decode": False, "do_remote_prefill": False,
            "remote_engine_id": self._engine_id, "remote_request_id": request.request_id,
            "remote_block_ids": [], "remote_host": None, "remote_port": None,
        }
        if request.status not in _FINISHED_NORMALLY or offer.staged < len(offer.tokens):
            if offer.staged > 0:
                self._work.withdrawn.append((offer.ticket, "the prefill request was aborted"))
            return params
        remote = RemoteKv(ticket=offer.ticket, addresses=self._addresses,
                          tokens=len(offer.tokens), profile=decision.profile,
                          reason=decision.reason, tp_size=self._tp_size, facts=self._facts,
                          would_be=decision.would_be, error=decision.error)
        host, _, port = self._addresses[0].rpartition(":")
        params.update(do_remote_prefill=True, remote_host=host, remote_port=int(port),
                      tp_size=self._tp_size, remote_num_tokens=len(offer.tokens),
                      kvserve=asdict(remote))
        return params

    # Decode engine.

    def _begin_load(self, request: Request, params: dict[str, Any]) -> None:
        context = context_of(request)
        remote, quality_class, error = None, "", ""
        try:
            remote = RemoteKv.parse(params.get("kvserve"))
            quality_class = class_of(remote.profile)
            error = self._misfit(request, remote)
        except (ValueError, KVServeError) as fault:
            error = str(fault)
        if error:
            logger.warning("request %s: %s", request.request_id, error)
        self._loads[request.request_id] = _Load(remote, error, context)
        if quality_class:
            salt_by_class(request, quality_class)

    def _misfit(self, request: Request, remote: RemoteKv) -> str:
        if remote.tp_size != self._tp_size or len(remote.addresses) != self._tp_size:
            return (f"the prefill engine has {remote.tp_size} tensor-parallel ranks and this one "
                    f"{self._tp_size}: they must be equal")
        expected = sent_tokens(request.num_prompt_tokens)
        if remote.tokens != expected or request.prompt_token_ids is None:
            return (f"the prefill engine offers KV of {remote.tokens} tokens, this prompt needs "
                    f"{expected}: it was tokenized otherwise")
        return ""

    def _tokens_to_load(self, request: Request) -> int:
        """From the first token on; a load that cannot be is begun too, and fails, so that the
        engine's failure policy decides what becomes of the request."""
        if request.request_id in self._refused:
            return sent_tokens(request.num_prompt_tokens)
        params = request.kv_transfer_params
        if request.request_id not in self._loads or not params.get("do_remote_prefill"):
            return 0
        return sent_tokens(request.num_prompt_tokens)

    def _release(self, remote: RemoteKv) -> None:
        self._work.releases.append((remote.addresses, remote.ticket))

    @staticmethod
    def _load_report(load: _Load) -> dict[str, Any]:
        remote, report = load.remote, load.report or {}
        said = {"profile": remote.profile if remote else None,
                "reason": remote.reason if remote else "not_loaded",
                "raw_bytes": report.get("raw_bytes", 0), "wire_bytes": report.get("wire_bytes", 0),
                "compression_ratio": None, "stages_ms": {}, "error": load.error or None}
        if remote and remote.would_be:
            said["would_be"] = remote.would_be
        if remote and remote.error:
            said["error"] = remote.error
        if not report:
            if not load.error:
                said["reason"] = "held_already"
            return said
        if report["error"]:
            said.update(reason="recomputed", error=report["error"])
            return said
        if report["wire_bytes"]:
            said["compression_ratio"] = round(report["raw_bytes"] / report["wire_bytes"], 4)
        said["stages_ms"] = {name.removesuffix("_s"): round(report[name] * 1e3, 3)
                             for name in ("queue_s", "wire_s", "decode_s", "total_s")}
        return said


def salt_by_class(request: Request, quality_class: str) -> None:
    """Makes the hashes of the request's blocks those of its quality class; see above. Called before
    the scheduler looks for them."""
    client = request.cache_salt or ""
    request.cache_salt = f"{client}|kvserve:{quality_class}"
    request.block_hashes = []
    request.update_block_hashes()
