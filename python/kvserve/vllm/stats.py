"""Counters of the connector in vLLM's own metrics endpoint. Sums over the ranks of one engine; the
wire rate is given per rank and per engine, since a mean over ranks is easily taken for the total."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.metrics.utils import create_metric_per_engine

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_PER_RANK = " Per tensor-parallel rank: sum over rank for the engine."

# name: (labels beyond the engine's, help)
COUNTERS: dict[str, tuple[tuple[str, ...], str]] = {
    "decisions": (("reason", "profile"),
                  "Requests by the reason and the profile of their decision. Per engine: made "
                  "once, for all ranks."),
    "offers": (("outcome", "rank"),
               "Tickets of a prefill engine that have ended, by outcome." + _PER_RANK),
    "loads": (("outcome", "rank"),
              "Loads of a decode engine that have ended, and requests that an engine refused, "
              "by outcome." + _PER_RANK),
    "raw_bytes": (("direction", "rank"),
                  "KV bytes in the cache's dtype, sent or received." + _PER_RANK),
    "wire_bytes": (("direction", "rank"), "The same as frames." + _PER_RANK),
    "codec_seconds": (("direction", "rank"),
                      "Thread time in encoding (sent) or decoding (received)." + _PER_RANK),
    "wire_seconds": (("rank",),
                     "Time in which loads were receiving, summed over loads: wire_bytes received "
                     "by it is the mean rate of one load." + _PER_RANK),
    "lossless_fallback_frames": (("rank",),
                                 "Frames that a profile could not code or made larger."
                                 + _PER_RANK),
    "drift_fallback_frames": (("reason", "rank"),
                              "Frames unlike the calibration's texts, encoded by the fallback "
                              "profile; by what was out of bounds in the first of a ticket."
                              + _PER_RANK),
}
HISTOGRAMS: dict[str, tuple[list[float], str]] = {
    "load_seconds": ([.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60],
                     "From a load's start to its KV in the cache. One observation per load and "
                     "rank."),
    "load_queue_seconds": ([.001, .01, .1, .5, 1, 5, 10, 30, 60],
                           "The part of it spent waiting for a free connection. One observation "
                           "per load and rank."),
}


def _key(name: str, labels: tuple[str, ...]) -> str:
    return "\x1f".join((name, *labels))


@dataclass
class KVServeStats(KVConnectorStats):
    """`data` is {"counters": {key: sum}, "histograms": {name: [observations]}}: plain values, since
    it crosses processes."""

    data: dict[str, Any] = field(default_factory=lambda: {"counters": {}, "histograms": {}})

    def add(self, name: str, amount: float, *labels: str) -> None:
        counters = self.data["counters"]
        key = _key(name, labels)
        counters[key] = counters.get(key, 0) + amount

    def observe(self, name: str, value: float) -> None:
        self.data["histograms"].setdefault(name, []).append(value)

    def count_decision(self, reason: str, profile: str) -> None:
        self.add("decisions", 1, reason, profile)

    def reset(self) -> None:
        self.data = {"counters": {}, "histograms": {}}

    def aggregate(self, other: KVConnectorStats) -> KVServeStats:
        for key, amount in other.data["counters"].items():
            self.data["counters"][key] = self.data["counters"].get(key, 0) + amount
        for name, values in other.data["histograms"].items():
            self.data["histograms"].setdefault(name, []).extend(values)
        return self

    def reduce(self) -> dict[str, int | float]:
        """For the log line of an interval: totals of this engine, all ranks together; rates also
        per rank."""
        total = {name: 0.0 for name in COUNTERS}
        directions: dict[str, float] = {}
        for key, amount in self.data["counters"].items():
            name, *labels = key.split("\x1f")
            total[name] += amount
            if name in ("raw_bytes", "wire_bytes"):
                directions[f"{name}/{labels[0]}"] = directions.get(f"{name}/{labels[0]}", 0) + amount
        raw, wire = total["raw_bytes"], total["wire_bytes"]
        rates = self._receive_rates()
        return {
            "Requests decided": int(total["decisions"]),
            "Offers ended": int(total["offers"]),
            "Loads ended": int(total["loads"]),
            "Sent MB (all ranks)": round(directions.get("wire_bytes/sent", 0) / 1e6, 3),
            "Received MB (all ranks)": round(directions.get("wire_bytes/received", 0) / 1e6, 3),
            "Load MB/s (mean of ranks)": round(sum(rates) / len(rates) / 1e6, 3) if rates else 0.0,
            "Load MB/s (all ranks)": round(sum(rates) / 1e6, 3),
            "Compression ratio": round(raw / wire, 3) if wire else 0.0,
        }

    def _receive_rates(self) -> list[float]:
        """Bytes per second of one load while it receives, [rank that has received]."""
        counters = self.data["counters"]
        rates = []
        for key, seconds in counters.items():
            name, *labels = key.split("\x1f")
            if name == "wire_seconds" and seconds > 0:
                rates.append(counters.get(_key("wire_bytes", ("received", labels[0])), 0) / seconds)
        return rates

    def is_empty(self) -> bool:
        return not self.data["counters"] and not self.data["histograms"]


class KVServePromMetrics(KVConnectorPromMetrics):
    """vllm:kvserve_* counters and histograms."""

    def __init__(self, vllm_config: VllmConfig, metric_types: dict, labelnames: list[str],
                 per_engine_labelvalues: dict[int, list[object]]):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            name: self._counter_cls(name=f"vllm:kvserve_{name}", documentation=text,
                                    labelnames=[*labelnames, *labels])
            for name, (labels, text) in COUNTERS.items()
        }
        self._histograms = {
            name: create_metric_per_engine(
                self._histogram_cls(name=f"vllm:kvserve_{name}", documentation=text,
                                    buckets=buckets, labelnames=labelnames),
                per_engine_labelvalues)
            for name, (buckets, text) in HISTOGRAMS.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        engine = self.per_engine_labelvalues[engine_idx]
        for key, amount in transfer_stats_data["counters"].items():
            name, *labels = key.split("\x1f")
            self._counters[name].labels(*engine, *labels).inc(amount)
        for name, values in transfer_stats_data["histograms"].items():
            for value in values:
                self._histograms[name][engine_idx].observe(value)
