"""KV caches kept in pages: where an engine keeps its blocks, and copies into and out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Union

from . import _native
from ._errors import InvalidArgumentError
from ._native import NO_BLOCK, Geometry, KvView, Layer
from ._planes import Plane, plane_of
from ._views import KvTensors, view
from .codec import Chunk

__all__ = ["NO_BLOCK", "BlockTables", "PagedCache", "PagedPlane"]

# The blocks of one request: [group][index], token t being in block tables[g][t // block_tokens].
# With a single group the inner list alone will do. NO_BLOCK: a block that is not held.
BlockTables = Union[Sequence[int], Sequence[Sequence[int]]]


class PagedPlane(NamedTuple):
    """One plane of the whole cache by address; strides are in elements."""

    address: int  # of block 0, slot 0, head 0, dim 0
    block_stride: int
    slot_stride: int
    head_stride: int
    dim_stride: int = 1


class _Shaped(NamedTuple):
    """A plane with its sizes."""

    plane: PagedPlane
    blocks: int
    slots: int
    heads: int
    dim: int
    dtype: str


# Axis of block, slot, head and dim in the tensors of a layout.
_AXES = {"nhd": (0, 1, 2, 3), "hnd": (0, 2, 1, 3)}


class PagedCache:
    """The cache of one engine rank, in the engine's own tensors, which this keeps alive.

    Gather and scatter copy bits as they are, by C++ with the interpreter free; they are safe from
    many threads while no block is written that another reads.
    """

    def __init__(self, layers: Sequence[Any], layout: str = "nhd", *, dtype: str | None = None,
                 geometry: Geometry | None = None, groups: Sequence[int] | None = None,
                 window_tokens: Sequence[int] | None = None) -> None:
        """layers: one entry per layer, host tensors of any strides:
            "nhd": [2, block, slot, head, dim], or a pair (K, V) of [block, slot, head, dim];
            "hnd": [2, block, head, slot, dim], or a pair (K, V) of [block, head, slot, dim];
            "vllm_cpu": [block, head, slot, 2 * dim] as vLLM's CPU attention keeps it: inside a
                block and head K [dim, slot], then V [slot, dim].
            V is None in a pair for a layer with one plane (MLA).
        dtype: what uint16 or uint8 arrays carry.
        geometry: of this rank, its own heads; without it, the shapes of the tensors.
        groups: which of a request's block tables is each layer's; 0 by default.
        window_tokens: per layer, when geometry is not given; 0: all tokens.
        """
        shaped = [_layer(layer, layout, dtype) for layer in layers]
        flat = [plane for pair in shaped for plane in pair if plane is not None]
        if not flat:
            raise InvalidArgumentError("a cache needs layers")
        blocks, slots = _same("blocks", flat), _same("slots", flat)
        windows = [0] * len(shaped) if window_tokens is None else list(window_tokens)
        own = Geometry(_dtype_of(flat), [
            Layer(kv_heads=k.heads, k_dim=k.dim, v_dim=0 if v is None else v.dim,
                  window_tokens=window)
            for (k, v), window in zip(shaped, windows, strict=True)])
        if geometry is not None:
            _check_shapes(own, geometry)
        self._set(geometry or own, slots, blocks,
                  [(k.plane, None if v is None else v.plane) for k, v in shaped], groups,
                  list(layers))

    @classmethod
    def from_planes(cls, geometry: Geometry, block_tokens: int, blocks: int,
                    planes: Sequence[tuple[PagedPlane, PagedPlane | None]], *,
                    groups: Sequence[int] | None = None, owner: Any = None) -> PagedCache:
        """A cache by addresses and strides: (K, V) per layer. `owner` is kept alive; the memory
        behind every block, slot, head and dim is the caller's word."""
        cache = cls.__new__(cls)
        cache._set(geometry, block_tokens, blocks, planes, groups, owner)
        return cache

    def _set(self, geometry: Geometry, block_tokens: int, blocks: int,
             planes: Sequence[tuple[PagedPlane, PagedPlane | None]],
             groups: Sequence[int] | None, owner: Any) -> None:
        numbers = [0] * len(planes) if groups is None else groups
        rows = [(group, tuple(k), None if v is None else tuple(v))
                for group, (k, v) in zip(numbers, planes, strict=True)]
        self._native = _native.PagedCache(geometry, block_tokens, blocks, rows, owner)

    @property
    def geometry(self) -> Geometry:
        return self._native.geometry

    @property
    def block_tokens(self) -> int:
        """Slots per block."""
        return self._native.block_tokens

    @property
    def blocks(self) -> int:
        return self._native.blocks

    def gather(self, tables: BlockTables, tokens: tuple[int, int], *,
               layers: Sequence[int] | None = None, total_tokens: int | None = None) -> Chunk:
        """Tokens [begin, end) of a request out of its blocks, all layers or some.

        total_tokens: where the request ends, so that window layers give what they then hold; by
        default the end of `tokens`.
        """
        chosen = range(len(self.geometry.layers)) if layers is None else layers
        return Chunk(self._native.gather(block_tables(tables), tokens, list(chosen),
                                         tokens[1] if total_tokens is None else total_tokens))

    def gather_into(self, tables: BlockTables, tokens: tuple[int, int], out: KvView) -> None:
        """Those of `tokens` that a writable `view` of this cache's geometry holds."""
        self._native.gather_into(block_tables(tables), tokens, out)

    def scatter(self, kv: Union[Chunk, KvView, KvTensors], tables: BlockTables,
                tokens: tuple[int, int] | None = None) -> None:
        """A chunk into the blocks of a request; all its tokens, or those of [begin, end)."""
        source = kv._native if isinstance(kv, Chunk) else kv
        if not isinstance(source, (KvView, _native.Chunk)):
            source = view(source, dtype=self.geometry.dtype, geometry=self.geometry, tokens=tokens)
        self._native.scatter(source, block_tables(tables), tokens or source.tokens)

    def __repr__(self) -> str:
        return (f"PagedCache({self.geometry.dtype}, {len(self.geometry.layers)} layers, "
                f"{self.blocks} blocks of {self.block_tokens} tokens)")


def block_tables(tables: BlockTables) -> Sequence[Sequence[int]]:
    """[group][index], also of a single group."""
    if len(tables) > 0 and hasattr(tables[0], "__index__") and not hasattr(tables[0], "__len__"):
        return [tables]
    return tables


def _layer(layer: Any, layout: str, dtype: str | None) -> tuple[_Shaped, _Shaped | None]:
    """K and V of one layer."""
    if layout == "vllm_cpu":
        return _vllm_cpu(plane_of(layer, dtype))
    if layout not in _AXES:
        raise InvalidArgumentError(f"layout '{layout}' is not one of nhd, hnd, vllm_cpu")
    if isinstance(layer, (tuple, list)):
        k, v = layer
        return (_shaped(plane_of(k, dtype), layout),
                None if v is None else _shaped(plane_of(v, dtype), layout))
    both = plane_of(layer, dtype)
    if len(both.shape) != 5 or both.shape[0] != 2:
        raise InvalidArgumentError(f"a layer of shape {list(both.shape)} is not [2, ...] with five "
                                   f"axes, as {layout} has")
    k = both._replace(shape=both.shape[1:], strides=both.strides[1:])
    step = both.strides[0] * _native.DTYPE_BYTES[both.dtype]
    return _shaped(k, layout), _shaped(k._replace(address=k.address + step), layout)


def _shaped(plane: Plane, layout: str) -> _Shaped:
    if len(plane.shape) != 4:
        raise InvalidArgumentError(f"a plane of shape {list(plane.shape)} has not the four axes of "
                                   f"{layout}")
    _check_writable(plane)
    axes = _AXES[layout]
    block, slot, head, dim = (plane.strides[axis] for axis in axes)
    return _Shaped(PagedPlane(plane.address, block, slot, head, dim),
                   *(plane.shape[axis] for axis in axes), plane.dtype)


def _vllm_cpu(plane: Plane) -> tuple[_Shaped, _Shaped]:
    if len(plane.shape) != 4 or plane.shape[3] % 2 != 0:
        raise InvalidArgumentError(f"a layer of shape {list(plane.shape)} is not "
                                   "[block, head, slot, 2 * dim]")
    _check_writable(plane)
    blocks, heads, slots, both = plane.shape
    if plane.strides[2:] != (both, 1):
        raise InvalidArgumentError("slots and dims of a vllm_cpu layer are not contiguous")
    dim = both // 2
    block_stride, head_stride = plane.strides[:2]
    value = plane.address + dim * slots * _native.DTYPE_BYTES[plane.dtype]
    return (_Shaped(PagedPlane(plane.address, block_stride, 1, head_stride, slots), blocks, slots,
                    heads, dim, plane.dtype),
            _Shaped(PagedPlane(value, block_stride, dim, head_stride, 1), blocks, slots, heads,
                    dim, plane.dtype))


def _check_writable(plane: Plane) -> None:
    if not plane.writable:
        raise InvalidArgumentError("an array of the cache is read-only")


def _same(what: str, planes: Sequence[_Shaped]) -> int:
    sizes = {getattr(plane, what) for plane in planes}
    if len(sizes) != 1:
        raise InvalidArgumentError(f"layers have {sorted(sizes)} {what}; a cache has one number")
    return sizes.pop()


def _dtype_of(planes: Sequence[_Shaped]) -> str:
    names = {plane.dtype for plane in planes}
    if len(names) != 1:
        raise InvalidArgumentError(f"layers have the dtypes {sorted(names)}; a cache has one")
    return names.pop()


def _check_shapes(own: Geometry, given: Geometry) -> None:
    """The tensors are what the geometry says; windows and RoPE are its word alone."""
    if own.dtype != given.dtype or len(own.layers) != len(given.layers):
        raise InvalidArgumentError(f"tensors of {own} do not fit {given}")
    for index, (a, b) in enumerate(zip(own.layers, given.layers)):
        if (a.kv_heads, a.k_dim, a.v_dim) != (b.kv_heads, b.k_dim, b.v_dim):
            raise InvalidArgumentError(f"layer {index}: tensors of {a} do not fit {b}")
