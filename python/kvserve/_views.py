"""A chunk of KV in the caller's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from ._errors import InvalidArgumentError
from ._native import Geometry, KvView, Layer
from ._planes import Plane, plane_of, same_dtype

# K and V of one layer, each [token, head, dim]; V is None for a layer with one plane (MLA).
LayerTensors = tuple[Any, Any]
KvTensors = Sequence[LayerTensors]
TokenRange = Union[int, tuple[int, int]]


def view(kv: KvTensors, *, dtype: str | None = None, geometry: Geometry | None = None,
         tokens: tuple[int, int] | None = None, layers: Sequence[int] | None = None,
         writable: bool = False) -> KvView:
    """A view of tensors [(k, v)] per layer, each [token, head, dim] with any strides.

    dtype: what uint16 or uint8 arrays carry ("bfloat16", "float8_e4m3fn", ...).
    geometry: shapes of the whole model; without it, those of the tensors.
    tokens: (begin, end), positions of the chunk in its request; from 0 by default. A layer that
        holds fewer tokens than the chunk (a sliding window) holds its last ones.
    layers: which layers of `geometry` these are, ascending; all by default.
    writable: for decoding into; refused for read-only arrays.
    """
    planes = [(plane_of(k, dtype), None if v is None else plane_of(v, dtype)) for k, v in kv]
    flat = [plane for pair in planes for plane in pair if plane is not None]
    for plane in flat:
        if len(plane.shape) != 3:
            raise InvalidArgumentError(f"a plane of shape {list(plane.shape)} is not "
                                       "[token, head, dim]")
        if writable and not plane.writable:
            raise InvalidArgumentError("an array is read-only")
    if geometry is None:
        if layers is not None:
            raise InvalidArgumentError("layers need the geometry of the model that they are of")
        geometry = _geometry_of(planes, same_dtype(flat))
    elif flat and same_dtype(flat) != geometry.dtype:
        raise InvalidArgumentError(f"planes of {same_dtype(flat)} are not the geometry's "
                                   f"{geometry.dtype}")
    longest = max((plane.shape[0] for plane in flat), default=0)
    begin, end = (0, longest) if tokens is None else tokens
    rows = []
    for index, (k, v) in zip(range(len(planes)) if layers is None else layers, planes,
                             strict=True):
        held = (end - k.shape[0], end)
        if held[0] < begin:
            raise InvalidArgumentError(f"layer {index} has {k.shape[0]} tokens, the chunk "
                                       f"[{begin}, {end})")
        rows.append((index, held, _tuple(k), None if v is None else _tuple(v)))
    return KvView(geometry, (begin, end), rows, writable, list(kv))


def _geometry_of(planes: Sequence[tuple[Plane, Plane | None]], dtype: str) -> Geometry:
    return Geometry(dtype, [Layer(kv_heads=k.shape[1], k_dim=k.shape[2],
                                  v_dim=0 if v is None else v.shape[2]) for k, v in planes])


def _tuple(plane: Plane) -> tuple[int, ...]:
    return (plane.address, *plane.shape, *plane.strides)
