"""The C++ library of KVServe; use the package kvserve instead."""

from collections.abc import Sequence
from typing import overload


VERSION: str = '0.1.0'

ERROR_CODES: dict = ...

class Layer:
    """
    One layer of the cache; K and V are [token, head, dim]. v_dim is 0 for a layer with one plane (MLA). window_tokens: 0, or how many of the last tokens are held.
    """

    def __init__(self, kv_heads: int, k_dim: int, v_dim: int, window_tokens: int = 0, rope_style: str = 'none', rope_theta: float = 0.0) -> None: ...

    @property
    def kv_heads(self) -> int: ...

    @property
    def k_dim(self) -> int:
        """values per head of K"""

    @property
    def v_dim(self) -> int:
        """values per head of V; 0: there is no V"""

    @property
    def window_tokens(self) -> int: ...

    @property
    def rope_style(self) -> str: ...

    @property
    def rope_theta(self) -> float: ...

    def __eq__(self, arg: Layer, /) -> bool: ...

    def __repr__(self) -> str: ...

class Geometry:
    """Shapes of a model's cache: the dtype of its elements and its layers."""

    def __init__(self, dtype: str, layers: Sequence[Layer]) -> None: ...

    @property
    def dtype(self) -> str: ...

    @property
    def layers(self) -> list[Layer]:
        """[layer]"""

    def __eq__(self, arg: Geometry, /) -> bool: ...

    def __repr__(self) -> str: ...

DTYPE_BYTES: dict = ...

class Profile:
    """
    The chain of stages that turns KV into wire bytes, from its short form: 'none', 'lossless', 'hadamard|uniform:k_levels=16,v_levels=8|rans'.
    """

    def __init__(self, text: str) -> None: ...

    @property
    def name(self) -> str:
        """canonical short form; two equal profiles share it"""

    @property
    def lossless(self) -> bool:
        """whether decoding gives back every bit"""

    @property
    def needs_calibration(self) -> bool: ...

    @property
    def may_drop(self) -> str:
        """
        the selector by which frames may leave tokens out, or ''; engines that cannot drop tokens refuse such a profile
        """

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

    def __hash__(self) -> int: ...

    def __eq__(self, arg: Profile, /) -> bool: ...

class Calibration:
    """A .calib file: what stages have learnt offline about a model."""

    @staticmethod
    def load(path: str) -> Calibration:
        """Reads and checks a file."""

    @property
    def fingerprint(self) -> bytes:
        """XXH3-128 of the file, 16 bytes"""

def stage_rows() -> list:
    """Every stage of this build, as dictionaries."""

def preset_rows() -> list:
    """Every preset, as dictionaries."""

class KvView:
    """
    A chunk of KV in somebody's tensors, which it keeps alive; nothing is copied.
    """

    def __init__(self, geometry: Geometry, tokens: tuple[int, int], layers: Sequence[tuple[int, tuple[int, int], tuple[int, int, int, int, int, int, int], tuple[int, int, int, int, int, int, int] | None]], writable: bool, owner: object) -> None: ...

    @property
    def geometry(self) -> Geometry: ...

    @property
    def writable(self) -> bool: ...

    @property
    def tokens(self) -> tuple[int, int]:
        """(begin, end): positions in the request"""

    @property
    def raw_bytes(self) -> int:
        """bytes of all planes in the cache dtype"""

class Chunk:
    """
    A chunk of KV in memory of its own, planes contiguous [token, head, dim].
    """

    @property
    def geometry(self) -> Geometry: ...

    @property
    def tokens(self) -> tuple[int, int]:
        """(begin, end): positions in the request"""

    @property
    def layers(self) -> list[tuple[int, tuple[int, int]]]:
        """[(layer, (begin, end))] in ascending order"""

    @property
    def raw_bytes(self) -> int: ...

    def plane(self, position: int, value: bool) -> object:
        """
        K, or V when `value`, of the layer at a position of `layers`: a numpy array [token, head, dim] on the chunk's memory; None for the V of a layer without.
        """

    def copy_to(self, to: KvView) -> None:
        """Copies every element into tensors of the same shapes."""

class Frame:
    """
    The bytes of one frame. Has the buffer protocol: what takes bytes takes it, and bytes(frame) copies them.
    """

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...

    @property
    def raw_bytes(self) -> int:
        """of the KV, in the cache dtype"""

class Request:
    """What an encoder remembers of one request from frame to frame."""

class Encoder:
    def __init__(self, profile: Profile, threads: int = 1, calibration: Calibration | None = None, fallback: Profile | None = None) -> None: ...

    @overload
    def encode(self, kv: KvView, model: bytes | None = None, key: bytes | None = None, prompt_tokens: int = 0, request: Request | None = None) -> Frame: ...

    @overload
    def encode(self, kv: Chunk, model: bytes | None = None, key: bytes | None = None, prompt_tokens: int = 0, request: Request | None = None) -> Frame: ...

    def new_request(self) -> Request: ...

    @property
    def fallback_reason(self) -> str: ...

    @property
    def profile(self) -> Profile: ...

    @property
    def stage_seconds(self) -> dict[str, float]:
        """seconds spent per stage so far, summed over threads"""

class Decoder:
    def __init__(self, threads: int = 1, calibration: Calibration | None = None) -> None: ...

    def decode(self, frame: object, model: bytes | None = None, key: bytes | None = None, max_raw_bytes: int = 17179869184) -> tuple[Chunk, int]: ...

    def decode_into(self, frame: object, to: KvView, model: bytes | None = None, key: bytes | None = None, max_raw_bytes: int = 17179869184) -> int: ...

    @property
    def dropped(self) -> list[bool]: ...

    @property
    def partly_dropped(self) -> bool: ...

    @property
    def stage_seconds(self) -> dict[str, float]:
        """seconds spent per stage so far, summed over threads"""

def prefix_key(model: bytes, tokens: Sequence[int]) -> bytes:
    """
    Identity of a token prefix, 16 bytes: XXH3-128 over the token ids, seeded by the model.
    """

class PagedCache:
    """
    The cache of one engine rank: planes [block, slot, head, dim] in somebody's tensors, which it keeps alive.
    """

    def __init__(self, geometry: Geometry, block_tokens: int, blocks: int, layers: Sequence[tuple[int, tuple[int, int, int, int, int], tuple[int, int, int, int, int] | None]], owner: object) -> None: ...

    @property
    def geometry(self) -> Geometry: ...

    @property
    def block_tokens(self) -> int: ...

    @property
    def blocks(self) -> int: ...

    def gather_into(self, tables: Sequence[Sequence[int]], tokens: tuple[int, int], out: KvView) -> None: ...

    def gather(self, tables: Sequence[Sequence[int]], tokens: tuple[int, int], layers: Sequence[int], total_tokens: int) -> Chunk: ...

    @overload
    def scatter(self, kv: Chunk, tables: Sequence[Sequence[int]], tokens: tuple[int, int]) -> None: ...

    @overload
    def scatter(self, kv: KvView, tables: Sequence[Sequence[int]], tokens: tuple[int, int]) -> None: ...

NO_BLOCK: int = 4294967295

class Sender:
    @staticmethod
    def start(cache: PagedCache, listen: str, token_file: str, model: bytes | None, frame_tokens: int, layers_per_frame: int, threads: int, lease_s: float, max_staged_bytes: int, pace_bytes_per_s: float, calibration: Calibration | None, fallback: Profile | None) -> Sender: ...

    def close(self) -> None: ...

    @property
    def address(self) -> str: ...

    def begin(self, ticket: str, profile: str, tokens: Sequence[int], context: bytes, receivers: int) -> None: ...

    def stage(self, ticket: str, tables: Sequence[Sequence[int]], tokens: tuple[int, int], first_layer: int, layers: int) -> None: ...

    def wait_read(self) -> None: ...

    def withdraw(self, ticket: str, code: int, message: str) -> None: ...

    def take_reports(self) -> list: ...

    @property
    def open_tickets(self) -> int: ...

    @property
    def staged_bytes(self) -> int: ...

class Receiver:
    @staticmethod
    def start(cache: PagedCache, token_file: str, model: bytes | None, threads: int, connections: int, stall_s: float, calibration: Calibration | None) -> Receiver: ...

    def close(self) -> None: ...

    def fetch(self, id: str, address: str, ticket: str, tokens: Sequence[int], wanted: tuple[int, int], tables: Sequence[Sequence[int]], context: bytes, deadline_s: float) -> None: ...

    def cancel(self, id: str) -> None: ...

    def release(self, address: str, ticket: str) -> None: ...

    def take_reports(self) -> list: ...

    @property
    def running(self) -> int: ...
