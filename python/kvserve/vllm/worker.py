"""The worker's half of the connector: reads blocks into the sender layer by layer as the forward
pass writes them, and has the receiver write blocks that requests wait for. What takes time runs on
threads of the native library, without the interpreter's lock."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.logger import init_logger

from kvserve.vllm.cache_layout import CacheDescription, fact_that_differs
from kvserve.vllm.messages import (
    FetchWork,
    KVServeMetadata,
    KVServeWorkerMetadata,
    StageWork,
    WorkerAddress,
)
from kvserve.vllm.settings import Settings
from kvserve.vllm.stats import KVServeStats
from kvserve.vllm.transport import Transport

logger = init_logger(f"vllm.{__name__}")  # the root of what vLLM shows


class WorkerHalf:
    """One per tensor-parallel rank; called by the model runner's thread alone."""

    def __init__(self, cache: CacheDescription, settings: Settings, rank: int, tp_size: int,
                 producer: bool, consumer: bool):
        self._rank = rank
        self._tp_size = tp_size
        self._facts = cache.facts
        self._layer_index = cache.layer_index
        self._layers = len(cache.layer_index)
        self._group = settings.layers_per_frame or self._layers
        self._transport = Transport(cache, settings, rank, tp_size, producer, consumer)
        self._staging: list[StageWork] = []
        self._staged_layers = 0  # of this step, from layer 0 on
        self._loading: dict[str, str] = {}  # request id: the profile that was announced
        self._failed_at_once: dict[str, str] = {}
        self._loads = KVServeWorkerMetadata()
        self._stats = KVServeStats()

    @property
    def handshake(self) -> WorkerAddress | None:
        """Where this rank's sender listens; None on a pure decode engine."""
        address = self._transport.address
        return WorkerAddress(address, self._facts) if address else None

    # Prefill: called in this order in every step.

    def begin_step(self, work: KVServeMetadata) -> None:
        """What a step begins with, before its forward pass."""
        for ticket, reason in work.withdrawn:
            self._transport.withdraw(ticket, reason)
        for offer in work.offers:
            self._transport.begin(offer)
        self._staging = work.stages
        self._staged_layers = 0

    def layer_written(self, layer_name: str) -> None:
        """The step's KV of this layer is in the cache: layers of a full group are staged."""
        if not self._staging:
            return
        index = self._layer_index.get(layer_name)
        if index is None or index < self._staged_layers:
            return
        if (index + 1) % self._group == 0 or index + 1 == self._layers:
            self._stage_up_to(index + 1)

    def end_step(self) -> None:
        """All layers have run. Returns when their blocks have been read and may be overwritten."""
        if not self._staging:
            return
        self._stage_up_to(self._layers)
        self._transport.wait_read()
        self._staging = []

    def _stage_up_to(self, layer: int) -> None:
        if layer <= self._staged_layers:
            return
        for work in self._staging:
            self._transport.stage(work, self._staged_layers, layer - self._staged_layers)
        self._staged_layers = layer

    # Decode.

    def start_loads(self, work: KVServeMetadata) -> None:
        for fetch in work.fetches:
            self._start(fetch)
        for request_id, reason in work.failing.items():
            self._failed_at_once[request_id] = reason
        for addresses, ticket in work.releases:
            for address in addresses[self._rank::self._tp_size]:  # there may be more, or fewer
                self._transport.release(address, ticket)

    def _start(self, fetch: FetchWork) -> None:
        try:
            if wrong := fact_that_differs(fetch.facts, self._facts):
                raise ValueError(wrong)
            self._transport.fetch(fetch, fetch.addresses[self._rank])
        except Exception as error:  # a load that cannot begin has failed, and no more than that
            logger.warning("request %s: %s", fetch.request_id, error)
            self._failed_at_once[fetch.request_id] = str(error)
        else:
            self._loading[fetch.request_id] = fetch.profile

    def transfer_results(self, finished_requests: set[str]) -> KVConnectorTransferResults:
        """Loads that have ended since the last call. Those of requests that ended first are
        cancelled, and their end is told too: the engine frees their blocks then."""
        for request_id in finished_requests & self._loading.keys():
            self._transport.cancel(request_id)
        results = KVConnectorTransferResults()
        for request_id, reason in self._failed_at_once.items():
            self._tell(results, request_id, _no_report(reason))
            self._stats.add("loads", 1, "refused", str(self._rank))
        self._failed_at_once.clear()
        for report in self._transport.take_fetch_reports():
            _check_profile(report, self._loading.pop(report["id"]))
            self._count_load(report)
            self._tell(results, report["id"], report)
        for report in self._transport.take_offer_reports():
            self._count_offer(report)
        return results

    def _tell(self, results: KVConnectorTransferResults, request_id: str,
              report: dict[str, Any]) -> None:
        results.finished_recving.add(request_id)
        if report["error"]:
            results.failed_recving.add(request_id)
        self._loads.loads[request_id] = report

    def take_load_reports(self) -> KVServeWorkerMetadata | None:
        if not self._loads.loads:
            return None
        loads, self._loads = self._loads, KVServeWorkerMetadata()
        return loads

    def take_stats(self) -> KVServeStats | None:
        if self._stats.is_empty():
            return None
        stats, self._stats = self._stats, KVServeStats()
        return stats

    def shutdown(self) -> None:
        self._transport.close()

    def _count_load(self, report: dict[str, Any]) -> None:
        rank = str(self._rank)
        if report["error"]:
            log = logger.debug if report["code"] == "cancelled" else logger.warning
            log("load of request %s: %s", report["id"], report["error"])
        self._stats.add("loads", 1, report["code"] or "delivered", rank)
        self._stats.add("raw_bytes", report["raw_bytes"], "received", rank)
        self._stats.add("wire_bytes", report["wire_bytes"], "received", rank)
        self._stats.add("codec_seconds", report["decode_s"], "received", rank)
        self._stats.add("wire_seconds", report["wire_s"], rank)
        self._stats.observe("load_seconds", report["total_s"])
        self._stats.observe("load_queue_seconds", report["queue_s"])

    def _count_offer(self, report: dict[str, Any]) -> None:
        rank = str(self._rank)
        if report["outcome"] in ("expired", "failed"):
            logger.warning("ticket %s: %s %s", report["ticket"], report["outcome"], report["error"])
        self._stats.add("offers", 1, report["outcome"], rank)
        self._stats.add("raw_bytes", report["raw_bytes"], "sent", rank)
        self._stats.add("wire_bytes", report["sent_bytes"], "sent", rank)
        self._stats.add("codec_seconds", report["encode_s"], "sent", rank)
        self._stats.add("lossless_fallback_frames", report["lossless_fallbacks"], rank)
        if report["drift_fallbacks"]:
            logger.warning("ticket %s: %d of %d frames were unlike the calibration's texts and "
                           "encoded by the fallback profile; the first by its %s",
                           report["ticket"], report["drift_fallbacks"], report["frames"],
                           report["drift_reason"])
            self._stats.add("drift_fallback_frames", report["drift_fallbacks"],
                            report["drift_cause"], rank)


def _check_profile(report: dict[str, Any], announced: str) -> None:
    """KV that was sent by another profile than a router has handed on has failed: its blocks would
    be found as another quality class."""
    if not report["error"] and report["profile"] != announced:
        report.update(code="mismatch", error=f"the KV was sent by profile {report['profile']}, "
                                             f"where {announced} was announced")


def _no_report(reason: str) -> dict[str, Any]:
    return {"error": reason, "code": "refused", "raw_bytes": 0, "wire_bytes": 0, "queue_s": 0.0,
            "wire_s": 0.0, "decode_s": 0.0, "total_s": 0.0}
