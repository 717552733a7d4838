"""Quantizers fp4 and lloydmax: points of a codebook times the scale of a block. FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader, require
from float8 import values_of
from planes import Extent, Plane, Settings
from uniform import read_raw_token

LARGEST = np.finfo(np.float32).max
E2M1 = np.array([-6, -4, -3, -2, -1.5, -1, -.5, 0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)
POSITIVE = {
    2: [6536],
    3: [10027],
    4: [3709, 12373],
    5: [6263, 14124],
    6: [2603, 8193, 15512],
    7: [4592, 9733, 16657],
    8: [2008, 6193, 11009, 17629],
    9: [3634, 7527, 12095, 18470],
    10: [1635, 4996, 8666, 13036, 19211],
    11: [3010, 6163, 9657, 13866, 19872],
    12: [1380, 4193, 7183, 10533, 14607, 20467],
    13: [2570, 5229, 8085, 11315, 15274, 21009],
    14: [1194, 3615, 6148, 8894, 12022, 15881, 21505],
    15: [2243, 4545, 6972, 9625, 12665, 16437, 21962],
    16: [1052, 3179, 5380, 7720, 10291, 13255, 16949, 22385],
}


class _Codebook:
    """Real: a raw first token, then points times scales; `_scales(count, side)` is a subclass's."""

    native = False

    def __init__(self, points: tuple[np.ndarray, np.ndarray], group: tuple[int, int],
                 raw_first: bool):
        self._points, self._group, self._raw_first = points, group, raw_first

    def _has_raw_token(self, plane: Plane) -> bool:
        return self._raw_first and plane.first_token == 0

    def symbols(self, plane: Plane) -> Extent:
        rows = plane.tokens - self._has_raw_token(plane)
        return Extent(rows, plane.heads * plane.dim, len(self._points[plane.is_v]))

    def values(self, plane: Plane, symbols: np.ndarray, side: ByteReader) -> np.ndarray:
        parts = [read_raw_token(symbols.shape[1], side)] if self._has_raw_token(plane) else []
        if len(symbols):
            group = min(self._group[plane.is_v], plane.dim)
            per_head = -(-plane.dim // group)
            scales = self._scales(len(symbols) * plane.heads * per_head, side)
            column = np.arange(symbols.shape[1])
            block_of = column // plane.dim * per_head + column % plane.dim // group
            with np.errstate(over="ignore", under="ignore"):
                values = (self._points[plane.is_v][symbols]
                          * scales.reshape(len(symbols), -1)[:, block_of])
            parts.append(np.clip(values, -LARGEST, LARGEST) + np.float32(0))
        return np.concatenate(parts)


class Fp4Quantizer(_Codebook):
    """E2M1 elements; scales are float8 times one float32."""

    def __init__(self, settings: Settings):
        values = settings.parameters
        super().__init__((E2M1, E2M1), (int(values[1]), int(values[2])), bool(values[3]))

    def _scales(self, count: int, side: ByteReader) -> np.ndarray:
        of_plane = np.float32(side.number("f"))
        require(bool(np.isfinite(of_plane)) and of_plane >= 2.0**-100, "the scale of a plane")
        codes = np.frombuffer(side.take(count), np.uint8)
        require(bool((codes < 0x7F).all()), "a block's scale is not positive")
        with np.errstate(over="ignore", under="ignore"):
            return values_of("float8_e4m3fn")[codes] * of_plane


class LloydMaxQuantizer(_Codebook):
    """Points of the normal distribution; a scale per vector."""

    def __init__(self, settings: Settings):
        values = settings.parameters
        super().__init__((_lloyd_max(int(values[1])), _lloyd_max(int(values[2]))),
                         (int(values[3]), int(values[4])), bool(values[7]))

    def _scales(self, count: int, side: ByteReader) -> np.ndarray:
        form = side.number("B")
        require(form <= 1, "unknown form of scales")
        kind = np.dtype("<f4" if form else "<f2")
        scales = np.frombuffer(side.take(count * kind.itemsize), kind).astype(np.float32)
        require(bool((np.isfinite(scales) & ~np.signbit(scales)).all()), "a vector's scale")
        return scales


def _lloyd_max(levels: int) -> np.ndarray:
    positive = np.array(POSITIVE[levels], np.float32) / np.float32(8192)
    return np.concatenate([-positive[::-1], np.zeros(levels % 2, np.float32), positive])
