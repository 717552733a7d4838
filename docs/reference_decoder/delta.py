"""Transform delta, its inverse. FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader, require
from planes import Plane, Settings

TOKEN = 0


class Delta:
    def __init__(self, settings: Settings):
        values = settings.parameters
        self._axis = values[1]
        self._group = int(values[2])
        self._on = values[3], values[4]
        self._latest: dict[tuple, np.ndarray] = {}  # decoded planes by kind, tokens and shape

    def inverse(self, plane: Plane, values: np.ndarray, side: ByteReader) -> np.ndarray:
        """Of [token, head, dim] float32; planes come in coding order."""
        first = 1 if plane.first_token == 0 else 0
        out = values.copy()
        if self._on[plane.is_v] and len(values) > first:
            if self._axis == TOKEN:
                self._from_anchors(out[first:], side)
            else:
                self._from_layer(_like(plane), out[first:], first, side)
        self._latest[_like(plane)] = out
        return out

    def _from_anchors(self, rows: np.ndarray, side: ByteReader) -> None:
        form = side.number("B")
        require(form <= 1, "unknown form of anchors")
        kind = np.dtype("<f4" if form else "<f2")
        starts = range(0, len(rows), self._group)
        shape = (len(starts), *rows.shape[1:])
        anchors = np.frombuffer(side.take(int(np.prod(shape)) * kind.itemsize), kind)
        anchors = anchors.astype(np.float32).reshape(shape)
        weights = _read_weights(side, rows.shape[1])
        for anchor, start in zip(anchors, starts):
            group = rows[start:start + self._group]
            group[0] = anchor
            group[1:] += weights * anchor

    def _from_layer(self, like: tuple, rows: np.ndarray, first: int, side: ByteReader) -> None:
        if like in self._latest:
            rows += _read_weights(side, rows.shape[1]) * self._latest[like][first:]


def _like(plane: Plane) -> tuple:
    return plane.is_v, plane.first_token, plane.tokens, plane.heads, plane.dim


def _read_weights(side: ByteReader, heads: int) -> np.ndarray:
    """Of [head, dim]."""
    return np.frombuffer(side.take(heads), np.int8).astype(np.float32)[:, np.newaxis] / 64
