"""Transform hadamard, its inverse. FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader
from planes import Plane, Settings

MASK = 2**64 - 1


class Hadamard:
    def __init__(self, settings: Settings):
        self._seed = int(settings.parameters[1])
        self._on = settings.parameters[2], settings.parameters[3]

    def inverse(self, plane: Plane, values: np.ndarray, side: ByteReader) -> np.ndarray:
        """Of [token, head, dim] float32."""
        if not self._on[plane.is_v]:
            return values
        out = np.empty_like(values)
        start = 0
        while start < plane.dim:
            n = 1 << ((plane.dim - start).bit_length() - 1)
            part = slice(start, start + n)
            out[..., part] = _butterflies(values[..., part] * np.float32(1 / np.sqrt(n)), n)
            start += n
        negate = np.array([signs(self._seed, plane, head) for head in range(plane.heads)])
        return np.where(negate, -out, out)


def _butterflies(x: np.ndarray, n: int) -> np.ndarray:
    stride = n // 2
    while stride:
        pairs = x.reshape(*x.shape[:-1], n // (2 * stride), 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        stride //= 2
    return x


def signs(seed: int, plane: Plane, head: int) -> list[bool]:
    """Per dim of a head: whether it is negated."""
    words = [sign_word(seed, plane.layer, plane.is_v, head, j) for j in range(-(-plane.dim // 64))]
    return [bool(words[d // 64] >> (d % 64) & 1) for d in range(plane.dim)]


def sign_word(seed: int, layer: int, is_v: bool, head: int, j: int) -> int:
    key = _mix((_mix((seed << 32) + 2 * layer + is_v) + head) & MASK)
    return _mix((key + (j + 1) * 0x9E3779B97F4A7C15) & MASK)


def _mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31
