"""What the scheduler's half of the connector and the workers' halves tell each other, and what the
prefill engine tells the decode engine through kv_transfer_params."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

# Changes when a decode engine of an older release could not read what is said.
PARAMS_VERSION = 1


@dataclass
class OfferStart:
    """The first step of a request whose KV another engine will take."""

    ticket: str
    profile: str
    tokens: list[int]  # whose KV is sent: the prompt but its last token
    context: str


@dataclass
class StageWork:
    """KV of `begin..end` of a ticket lies in these blocks once the step's layers have run."""

    ticket: str
    begin: int
    end: int
    tables: list[list[int]]  # [group] block ids from token 0 on


@dataclass
class FetchWork:
    """KV that a request waits for."""

    request_id: str
    ticket: str
    profile: str
    addresses: list[str]  # [tensor-parallel rank]
    facts: dict[str, str]  # of the prefill engine (cache_layout.model_facts)
    tokens: list[int]
    context: str
    begin: int  # tokens before it are held already
    tables: list[list[int]]


@dataclass
class KVServeMetadata(KVConnectorMetadata):
    """One step's work, scheduler to workers."""

    offers: list[OfferStart] = field(default_factory=list)
    stages: list[StageWork] = field(default_factory=list)
    withdrawn: list[tuple[str, str]] = field(default_factory=list)  # ticket, reason
    fetches: list[FetchWork] = field(default_factory=list)
    failing: dict[str, str] = field(default_factory=dict)  # request id: why its load cannot begin
    releases: list[tuple[list[str], str]] = field(default_factory=list)  # addresses, ticket


@dataclass
class WorkerAddress(KVConnectorHandshakeMetadata):
    """Where a worker's sender listens, and what it says of its model."""

    address: str
    facts: dict[str, str]


@dataclass
class KVServeWorkerMetadata(KVConnectorWorkerMetadata):
    """Reports of loads that have ended, by request, workers to scheduler. Bytes are summed over
    ranks, times are the slowest rank's."""

    loads: dict[str, dict[str, Any]] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVServeWorkerMetadata:
        assert isinstance(other, KVServeWorkerMetadata)
        for request_id, report in other.loads.items():
            mine = self.loads.setdefault(request_id, report)
            if mine is report:
                continue
            add_report(mine, report)
        return self


def add_report(mine: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Another rank's report of the same load; ranks end in different steps."""
    for key in ("raw_bytes", "wire_bytes"):
        mine[key] += other[key]
    for key in ("queue_s", "wire_s", "decode_s", "total_s"):
        mine[key] = max(mine[key], other[key])
    mine["error"] = mine["error"] or other["error"]


@dataclass
class RemoteKv:
    """The part of kv_transfer_params that a prefill engine writes and a decode engine reads."""

    ticket: str
    addresses: list[str]
    tokens: int
    profile: str
    reason: str
    tp_size: int
    facts: dict[str, str]
    would_be: str = ""
    error: str = ""  # what was wrong with the request
    version: int = PARAMS_VERSION

    @classmethod
    def parse(cls, value: Any) -> RemoteKv:
        """ValueError says what is wrong: the text comes from outside."""
        if not isinstance(value, dict):
            raise ValueError("no kvserve object: the KV is not KVServe's")
        if value.get("version") != PARAMS_VERSION:
            raise ValueError(f"kvserve version {value.get('version')!r} in kv_transfer_params, "
                             f"{PARAMS_VERSION} here: the prefill engine is another release")
        kinds = {"ticket": str, "addresses": list, "tokens": int, "profile": str,
                 "reason": str, "tp_size": int, "facts": dict, "would_be": str,
                 "error": str}
        for name, kind in kinds.items():
            if not isinstance(value.get(name), kind):
                raise ValueError(f"kvserve.{name} is {value.get(name)!r} in kv_transfer_params")
        if not all(isinstance(address, str) for address in value["addresses"]):
            raise ValueError("kvserve.addresses holds something else than text")
        return cls(**{name: value[name] for name in kinds})
