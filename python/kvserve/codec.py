"""Encode a chunk of KV to a self-contained frame, and decode it again.

Axes are [token, head, dim]. Work is done by C++ threads with the interpreter free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Union

from . import _native
from ._native import Calibration, Frame, Geometry, KvView, Profile, Request
from ._views import KvTensors, view

MAX_RAW_BYTES = 1 << 34  # frames that claim more are refused before anything is allocated


class ChunkLayer(NamedTuple):
    """One layer of a chunk."""

    layer: int  # of the model
    tokens: tuple[int, int]  # positions in the request; a window layer may hold few, or none
    k: Any  # [token, head, k_dim]
    v: Any  # [token, head, v_dim]; None for a layer with one plane


class Chunk:
    """Decoded KV. Arrays and tensors of a chunk share its memory and keep it alive."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.Chunk) -> None:
        self._native = native

    @property
    def geometry(self) -> Geometry:
        """Shapes of the whole model."""
        return self._native.geometry

    @property
    def tokens(self) -> tuple[int, int]:
        """(begin, end): positions in the request."""
        return self._native.tokens

    @property
    def raw_bytes(self) -> int:
        """Bytes of all planes in the cache dtype."""
        return self._native.raw_bytes

    def numpy(self) -> list[ChunkLayer]:
        """The layers as numpy arrays; bfloat16 is seen as uint16, 8-bit floats as uint8."""
        native = self._native
        return [ChunkLayer(layer, tokens, native.plane(i, False), native.plane(i, True))
                for i, (layer, tokens) in enumerate(native.layers)]

    def torch(self) -> list[ChunkLayer]:
        """The layers as torch tensors of the cache's dtype."""
        import torch

        dtype = getattr(torch, self.geometry.dtype)

        def tensor(array: Any) -> Any:
            if array is None:
                return None
            if array.size == 0:
                return torch.empty(array.shape, dtype=dtype)
            return torch.from_numpy(array.view("uint8")).view(dtype)

        return [layer._replace(k=tensor(layer.k), v=tensor(layer.v)) for layer in self.numpy()]

    def copy_to(self, kv: Union[KvView, KvTensors], *, dtype: str | None = None) -> None:
        """Copies every element into tensors [(k, v)] of the same shapes and any strides."""
        self._native.copy_to(_writable(kv, dtype, self))

    def __repr__(self) -> str:
        return (f"Chunk({self.geometry.dtype}, tokens {list(self.tokens)}, "
                f"{len(self._native.layers)} layers, {self.raw_bytes} bytes)")


KvLike = Union[KvView, Chunk, KvTensors]


def _writable(kv: Union[KvView, KvTensors], dtype: str | None, like: Chunk) -> KvView:
    if isinstance(kv, KvView):
        return kv
    layers = [layer for layer, _ in like._native.layers]
    return view(kv, dtype=dtype or like.geometry.dtype, geometry=like.geometry,
                tokens=like.tokens, layers=layers, writable=True)


def _profile(profile: Union[str, Profile]) -> Profile:
    return profile if isinstance(profile, Profile) else Profile(profile)


class Encoder:
    """Encodes chunk after chunk by one profile; keeps its threads, plans and scratch memory.

    Calls from several Python threads take turns: give each its own encoder.
    """

    def __init__(self, profile: Union[str, Profile], *, threads: int = 1,
                 calibration: Calibration | None = None,
                 fallback: Union[str, Profile, None] = None) -> None:
        """profile: short form. threads: 1..256, the caller's included; they change no byte.
        calibration: for profiles that need one. fallback: a profile that needs none, for frames
        whose KV is unlike that of the calibration's texts."""
        self._native = _native.Encoder(_profile(profile), threads, calibration,
                                       None if fallback is None else _profile(fallback))

    @property
    def profile(self) -> Profile:
        return self._native.profile

    @property
    def fallback_reason(self) -> str:
        """Why the last frame was encoded by the fallback; empty if it was not."""
        return self._native.fallback_reason

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Seconds spent per stage so far, summed over threads."""
        return self._native.stage_seconds

    def encode(self, kv: KvLike, *, dtype: str | None = None, tokens: tuple[int, int] | None = None,
               geometry: Geometry | None = None, layers: Sequence[int] | None = None,
               model: bytes | None = None, key: bytes | None = None,
               prompt_tokens: int = 0, request: Request | None = None) -> Frame:
        """One frame of a chunk: [(k, v)] per layer, each [token, head, dim], any strides; a
        `KvView`; or a decoded `Chunk`. Tensors are read where they are.

        dtype, tokens, geometry, layers: as `view`, for tensors.
        model, key: fingerprints of 16 bytes, written into the frame; see `prefix_key`.
        prompt_tokens: length of the whole prefill; 0: not known yet.
        request: that the frame belongs to, from `new_request`; None: a frame on its own.
        """
        if isinstance(kv, Chunk):
            return self._native.encode(kv._native, model, key, prompt_tokens, request)
        if not isinstance(kv, KvView):
            kv = view(kv, dtype=dtype, tokens=tokens, geometry=geometry, layers=layers)
        return self._native.encode(kv, model, key, prompt_tokens, request)

    def new_request(self) -> Request:
        """What is remembered of one request from frame to frame, for profiles with a selector that
        looks back (`expected:keys=seen`). Frames come in the order of their tokens. It serves every
        encoder of the same profile."""
        return self._native.new_request()


class Decoder:
    """Decodes frame after frame, of any profiles; keeps its threads, plans and scratch memory.

    Calls from several Python threads take turns: give each its own decoder.
    """

    def __init__(self, *, threads: int = 1, calibration: Calibration | None = None) -> None:
        """threads: 1..256. calibration: for frames that name one."""
        self._native = _native.Decoder(threads, calibration)

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Seconds spent per stage so far, summed over threads."""
        return self._native.stage_seconds

    @property
    def dropped(self) -> list[bool]:
        """Per token of the last frame: whether all layers have dropped it. Its rows are zero, which
        attention must not see. Empty when there are none."""
        return self._native.dropped

    @property
    def partly_dropped(self) -> bool:
        """Some layers, keys or values of the last frame have dropped tokens that others hold."""
        return self._native.partly_dropped

    def decode(self, frame: Any, *, model: bytes | None = None, key: bytes | None = None,
               max_raw_bytes: int = MAX_RAW_BYTES) -> Chunk:
        """The chunk of a frame (anything with the buffer protocol), which may be hostile.

        model, key: frames of others are refused (MismatchError).
        max_raw_bytes: frames that claim more KV are refused before anything is allocated.
        """
        return Chunk(self._native.decode(frame, model, key, max_raw_bytes)[0])

    def decode_into(self, frame: Any, to: Union[KvView, KvTensors], *,
                    model: bytes | None = None, key: bytes | None = None,
                    max_raw_bytes: int = MAX_RAW_BYTES) -> None:
        """Decodes into tensors [(k, v)] of the frame's layers, each [token, head, dim], or into a
        writable `view` of the frame's geometry and tokens. After an error they are as before."""
        if isinstance(to, KvView):
            self._native.decode_into(frame, to, model, key, max_raw_bytes)
        else:
            self.decode(frame, model=model, key=key, max_raw_bytes=max_raw_bytes).copy_to(to)

    def decode_all(self, data: Any, *, model: bytes | None = None,
                   max_raw_bytes: int = MAX_RAW_BYTES) -> list[Chunk]:
        """The chunks of frames one after another, such as the contents of a .kvs file."""
        rest, chunks = memoryview(data).cast("B"), []
        while len(rest) > 0:
            chunk, length = self._native.decode(rest, model, None, max_raw_bytes)
            chunks.append(Chunk(chunk))
            rest = rest[length:]
        return chunks


def encode(kv: KvLike, profile: Union[str, Profile], *, dtype: str | None = None,
           tokens: tuple[int, int] | None = None, geometry: Geometry | None = None,
           layers: Sequence[int] | None = None, model: bytes | None = None,
           key: bytes | None = None, prompt_tokens: int = 0, threads: int = 1,
           calibration: Calibration | None = None) -> Frame:
    """One frame by an encoder of its own; see `Encoder.encode`. Many frames want an `Encoder`."""
    return Encoder(profile, threads=threads, calibration=calibration).encode(
        kv, dtype=dtype, tokens=tokens, geometry=geometry, layers=layers, model=model, key=key,
        prompt_tokens=prompt_tokens)


def decode(frame: Any, *, model: bytes | None = None, key: bytes | None = None,
           max_raw_bytes: int = MAX_RAW_BYTES, threads: int = 1,
           calibration: Calibration | None = None) -> Chunk:
    """The chunk of one frame by a decoder of its own; see `Decoder.decode`."""
    return Decoder(threads=threads, calibration=calibration).decode(
        frame, model=model, key=key, max_raw_bytes=max_raw_bytes)
