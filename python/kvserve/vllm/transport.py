"""The native sender and receiver as the worker uses them: plain values in, plain reports out."""

from __future__ import annotations

from typing import Any

import kvserve
from kvserve.vllm.cache_layout import CacheDescription
from kvserve.vllm.messages import FetchWork, OfferStart, StageWork
from kvserve.vllm.settings import Settings, SettingsError


class Transport:
    """One rank's. A producer listens from the start on; a consumer connects when it loads. Ranks
    hold other heads in the same shape: which ones is part of what both sides must state."""

    def __init__(self, cache: CacheDescription, settings: Settings, rank: int, tp_size: int,
                 producer: bool, consumer: bool):
        self._deadline_s = settings.deadline_s
        self._shard = f"heads={rank}/{tp_size}\n"
        paged = kvserve.PagedCache(cache.tensors, cache.layout, dtype=cache.dtype,
                                   window_tokens=[layer.window_tokens for layer in cache.layers])
        calibration = kvserve.Calibration.load(settings.calibration) if settings.calibration \
            else None
        port = settings.port + rank if settings.port else 0
        self.sender = kvserve.Sender(
            paged, listen=f"{settings.host}:{port}", token_file=settings.token_file,
            model=cache.fingerprint, frame_tokens=settings.frame_tokens,
            layers_per_frame=settings.layers_per_frame, threads=settings.threads,
            lease_s=settings.lease_s, max_staged_bytes=settings.max_staged_bytes,
            pace_bytes_per_s=settings.pace_bytes_per_s, calibration=calibration,
            fallback=settings.fallback or None,
        ) if producer else None
        if self.sender is not None:
            _check_default(self.sender, settings.profile, cache.dtype)
        self.receiver = kvserve.Receiver(
            paged, token_file=settings.token_file, model=cache.fingerprint,
            threads=settings.threads, connections=settings.connections,
            stall_s=settings.stall_s, calibration=calibration,
        ) if consumer else None
        self._failed: list[dict[str, Any]] = []  # offers that could not begin

    @property
    def address(self) -> str | None:
        return self.sender.address if self.sender else None

    # Prefill.

    def begin(self, offer: OfferStart) -> None:
        try:
            self._sending.begin(offer.ticket, offer.profile, offer.tokens,
                                self._shard + offer.context)
        except kvserve.KVServeError as error:
            self._failed.append(_failed_offer(offer.ticket, str(error)))

    def stage(self, work: StageWork, first_layer: int, layers: int) -> None:
        try:
            self._sending.stage(work.ticket, work.tables, (work.begin, work.end), first_layer,
                                layers)
        except kvserve.KVServeError as error:
            self._sending.withdraw(work.ticket, str(error))

    def wait_read(self) -> None:
        self._sending.wait_read()

    def withdraw(self, ticket: str, reason: str) -> None:
        self._sending.withdraw(ticket, reason)

    def take_offer_reports(self) -> list[dict[str, Any]]:
        if self.sender is None:
            return []
        failed, self._failed = self._failed, []
        return failed + [
            {"ticket": report.ticket, "outcome": report.outcome, "error": report.error or "",
             "raw_bytes": _raw_bytes_taken(report), "sent_bytes": report.sent_bytes,
             "encode_s": report.encode_s, "lossless_fallbacks": report.lossless_fallbacks,
             "drift_fallbacks": report.drift_fallbacks, "drift_cause": report.drift_cause,
             "drift_reason": report.drift_reason, "frames": report.frames}
            for report in self.sender.take_reports()]

    # Decode.

    def fetch(self, work: FetchWork, address: str) -> None:
        """KVServeError when it cannot begin."""
        self._receiving.fetch(
            work.request_id, address, work.ticket, work.tokens, tables=work.tables,
            wanted=(work.begin, len(work.tokens)), context=self._shard + work.context,
            deadline_s=self._deadline_s)

    def cancel(self, request_id: str) -> None:
        self._receiving.cancel(request_id)

    def release(self, address: str, ticket: str) -> None:
        self._receiving.release(address, ticket)

    def take_fetch_reports(self) -> list[dict[str, Any]]:
        if self.receiver is None:
            return []
        return [
            {"id": report.id, "error": str(report.error) if report.error else "",
             "code": report.error.name if report.error else "", "profile": report.profile,
             "raw_bytes": report.raw_bytes, "wire_bytes": report.wire_bytes,
             "queue_s": report.queue_s, "wire_s": report.wire_s, "decode_s": report.decode_s,
             "total_s": report.total_s}
            for report in self.receiver.take_reports()]

    def close(self) -> None:
        for side in (self.sender, self.receiver):
            if side is not None:
                side.close()

    @property
    def _sending(self) -> kvserve.Sender:
        assert self.sender is not None, "this engine is no kv_producer"
        return self.sender

    @property
    def _receiving(self) -> kvserve.Receiver:
        assert self.receiver is not None, "this engine is no kv_consumer"
        return self.receiver


def _check_default(sender: kvserve.Sender, profile: str, dtype: str) -> None:
    """SettingsError when nothing can be sent by this profile (it needs a calibration artefact or a
    prompt's queries): else every request that names none would find out."""
    if dtype.startswith("float8") and not kvserve.Profile(profile).lossless:
        return  # requests get `lossless`
    try:
        sender.begin("start", profile, [0])
    except kvserve.KVServeError as error:
        raise SettingsError(f"kv_connector_extra_config.profile={profile!r}: {error}") from error
    sender.withdraw("start")
    sender.take_reports()


def _raw_bytes_taken(report: kvserve.OfferReport) -> int:
    """What receivers have taken, at the ticket's mean ratio: they leave out what their prefix cache
    holds, and an expired ticket was never sent."""
    return report.raw_bytes * report.sent_bytes // report.wire_bytes if report.wire_bytes else 0


def _failed_offer(ticket: str, error: str) -> dict[str, Any]:
    return {"ticket": ticket, "outcome": "failed", "error": error, "raw_bytes": 0, "sent_bytes": 0,
            "encode_s": 0.0, "lossless_fallbacks": 0, "drift_fallbacks": 0, "drift_cause": "",
            "drift_reason": "", "frames": 0}
