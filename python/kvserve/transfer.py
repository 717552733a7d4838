"""KV between two engines: a sender on the prefill side, a receiver on the decode side.

Both work on the blocks of a `PagedCache` by C++ threads of their own; no call waits for the
network, and the interpreter is free in every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Union

from . import _native
from ._errors import CancelledError, KVServeError
from ._native import Calibration, Profile
from .paged import BlockTables, PagedCache, block_tables

__all__ = ["FetchReport", "OfferReport", "Receiver", "Sender"]


@dataclass(frozen=True)
class OfferReport:
    """How a ticket ended. Times are in seconds."""

    ticket: str
    outcome: str  # "delivered", "expired", "withdrawn" or "failed"
    error: KVServeError | None  # unless delivered
    tokens: int
    frames: int
    lossless_fallbacks: int  # frames that the profile could not code or made larger
    drift_fallbacks: int  # frames that the fallback encoded
    drift_cause: str  # of the first of those: what was out of bounds
    drift_reason: str  # the same and how far, for people
    raw_bytes: int  # staged, in the cache dtype
    wire_bytes: int  # frames made
    sent_bytes: int  # frames taken by receivers
    gather_s: float  # summed over threads
    encode_s: float  # likewise
    ready_s: float  # from begin to the last frame made


@dataclass(frozen=True)
class FetchReport:
    """How a fetch ended. Times are in seconds."""

    id: str
    ticket: str
    error: KVServeError | None  # set: the blocks hold nothing that may be used
    profile: str  # as the sender tells it
    tokens: int  # written per full layer
    frames: int
    lossless_fallbacks: int  # frames that the profile could not code or made larger
    drift_fallbacks: int  # frames by the fallback that the sender has announced
    raw_bytes: int
    wire_bytes: int
    queue_s: float  # before a connection was free and made
    wire_s: float  # receiving
    decode_s: float  # decoding and writing, summed over threads
    total_s: float
    link_bytes_per_s: float  # 0: nothing was received for long enough to tell


def _context(context: Union[bytes, str]) -> bytes:
    return context.encode() if isinstance(context, str) else context


class _Closing:
    """With-statement for what has close()."""

    _native: Union[_native.Sender, _native.Receiver]

    def close(self) -> None:
        """Ends everything that runs, once calls of other threads have returned."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class Sender(_Closing):
    """Reads a request's KV out of the engine's blocks as it is computed, encodes it, and serves it
    to whoever has the ticket. All calls are thread-safe; none waits for the network."""

    _native: _native.Sender

    def __init__(self, cache: PagedCache, *, listen: str = "127.0.0.1:0", token_file: str = "",
                 model: bytes | None = None, frame_tokens: int = 256, layers_per_frame: int = 0,
                 threads: int = 1, lease_s: float = 300.0, max_staged_bytes: int = 4 << 30,
                 pace_bytes_per_s: float = 0.0, calibration: Calibration | None = None,
                 fallback: Union[str, Profile, None] = None) -> None:
        """listen: host:port; beyond loopback a token_file (shared secret, mode 600) is required.
        model: fingerprint of 16 bytes; receivers of another model are refused.
        frame_tokens: tokens per frame, 1..65536.
        layers_per_frame: 0: all; fewer leave sooner and cost more bytes.
        threads: that encode, 1..64.
        lease_s: a ticket is dropped when nothing of it was staged or taken for so long.
        max_staged_bytes: frames and raw KV waiting, all tickets.
        pace_bytes_per_s: all receivers together; 0: unlimited.
        calibration: for profiles that need one. fallback: a profile that needs none, for frames
            whose KV is unlike that of the calibration's texts.
        """
        self._native = _native.Sender.start(
            cache._native, listen, token_file, model, frame_tokens, layers_per_frame, threads,
            lease_s, max_staged_bytes, pace_bytes_per_s, calibration,
            None if fallback is None else Profile(str(fallback)))
        self._layers = len(cache.geometry.layers)

    @property
    def address(self) -> str:
        """host:port, with the real port."""
        return self._native.address

    def begin(self, ticket: str, profile: Union[str, Profile], tokens: Sequence[int],
              context: Union[bytes, str] = b"", *, receivers: int = 1) -> None:
        """Opens a ticket (1..256 bytes, never used before).

        tokens: whose KV is sent: the prompt or a part from its start.
        context: whatever else the KV depends on (adapter, image hashes, a tenant's salt);
            receivers must state the same.
        receivers: that will take it; it is kept until so many have.
        """
        self._native.begin(ticket, str(profile), tokens, _context(context), receivers)

    def stage(self, ticket: str, tables: BlockTables, tokens: tuple[int, int],
              first_layer: int = 0, layers: int | None = None) -> None:
        """The KV of tokens [begin, end) in these layers (all by default) is in the request's
        blocks: read it and encode what is complete. Returns before anything is read.

        Tokens come in order per layer, each once; window layers are given all theirs.
        """
        count = self._layers - first_layer if layers is None else layers
        self._native.stage(ticket, block_tables(tables), tokens, first_layer, count)

    def wait_read(self) -> None:
        """Returns when everything staged so far has been read: blocks may be overwritten."""
        self._native.wait_read()

    def withdraw(self, ticket: str, reason: Union[KVServeError, str] = "withdrawn") -> None:
        """Drops a ticket; a receiver is told the reason. Unknown tickets are ignored."""
        code = reason.code if isinstance(reason, KVServeError) else CancelledError.code
        self._native.withdraw(ticket, code, str(reason))

    def take_reports(self) -> list[OfferReport]:
        """Tickets that have ended since the last call, each once."""
        return [OfferReport(**row) for row in self._native.take_reports()]

    @property
    def open_tickets(self) -> int:
        return self._native.open_tickets

    @property
    def staged_bytes(self) -> int:
        """Frames and raw KV held now."""
        return self._native.staged_bytes


class Receiver(_Closing):
    """Takes the KV of tickets from senders, decodes it and writes it into the engine's blocks.

    Every fetch ends in exactly one report, within its deadline; after that no block of it is
    written. All calls are thread-safe; none waits for the network.
    """

    _native: _native.Receiver

    def __init__(self, cache: PagedCache, *, token_file: str = "", model: bytes | None = None,
                 threads: int = 1, connections: int = 16, stall_s: float = 30.0,
                 calibration: Calibration | None = None) -> None:
        """threads: that decode and write, 1..64.
        connections: transfers at the same time; more wait in order.
        stall_s: no byte from the sender for so long: the fetch has failed.
        token_file, model, calibration: as `Sender`.
        """
        self._native = _native.Receiver.start(cache._native, token_file, model, threads,
                                              connections, stall_s, calibration)

    def fetch(self, id: str, address: str, ticket: str, tokens: Sequence[int],
              tables: BlockTables, *, wanted: tuple[int, int] | None = None,
              context: Union[bytes, str] = b"", deadline_s: float = 120.0) -> None:
        """Starts a transfer into the blocks of a request, which must stay its own until the report.

        id: the caller's, unique among running fetches.
        tokens, context: as offered.
        wanted: what is not held already, [begin, len(tokens)); all by default.
        deadline_s: from now, waiting for a connection included.
        """
        self._native.fetch(id, address, ticket, tokens, wanted or (0, len(tokens)),
                           block_tables(tables), _context(context), deadline_s)

    def cancel(self, id: str) -> None:
        """Its report comes soon, with CancelledError unless it has ended already."""
        self._native.cancel(id)

    def release(self, address: str, ticket: str) -> None:
        """Tells a sender that nothing of this ticket is needed. Best effort."""
        self._native.release(address, ticket)

    def take_reports(self) -> list[FetchReport]:
        """Fetches that have ended since the last call, each once."""
        return [FetchReport(**row) for row in self._native.take_reports()]

    @property
    def running(self) -> int:
        """Fetches without a report, waiting ones included."""
        return self._native.running
