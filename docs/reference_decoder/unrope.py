"""Transform unrope, its inverse. FORMAT_STAGES.md."""

import math
from functools import lru_cache

import numpy as np

from byte_reader import ByteReader
from planes import Plane, Settings

INTERLEAVED = 1
CIRCLE = 2**64


class UnRope:
    def __init__(self, settings: Settings):
        del settings

    def inverse(self, plane: Plane, values: np.ndarray, side: ByteReader) -> np.ndarray:
        """Of [token, head, dim] float32."""
        del side
        if plane.is_v or not plane.rope_style or plane.dim % 2:
            return values
        pairs = plane.dim // 2
        turns = _turns(plane.rope_theta, plane.dim)
        angles = [[cosine_sine(token * turn % CIRCLE) for turn in turns]
                  for token in range(plane.first_token, plane.first_token + plane.tokens)]
        table = np.array(angles, np.float64).astype(np.float32).reshape(plane.tokens, 1, pairs, 2)
        cosine, sine = table[..., 0], table[..., 1]
        interleaved = plane.rope_style == INTERLEAVED
        first = slice(0, None, 2) if interleaved else slice(0, pairs)
        second = slice(1, None, 2) if interleaved else slice(pairs, None)
        a, b = values[..., first], values[..., second]
        out = np.empty_like(values)
        out[..., first] = a * cosine - b * sine
        out[..., second] = b * cosine + a * sine
        return out


@lru_cache
def _turns(theta: float, dim: int) -> list[int]:
    """Per pair, the part of a circle that one position turns, of 2^64."""
    turns = []
    for i in range(dim // 2):
        circles = _exp2(-(2.0 * i * _log2(theta)) / dim) * 0.15915494309189535
        turns.append(int((circles - math.floor(circles)) * 2.0**64))
    return turns


def _log2(x: float) -> float:
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2 * mantissa, exponent - 1
    s = (mantissa - 1) / (mantissa + 1)
    w = s * s
    y = 1 / 21
    for k in range(19, 0, -2):
        y = y * w + 1 / k
    return exponent + y * s * 2.8853900817779268


def _exp2(x: float) -> float:
    whole = math.floor(x + 0.5)
    z = (x - whole) * 0.6931471805599453
    y = 1.0
    for k in range(13, 0, -1):
        y = y * z / k + 1
    return math.ldexp(y, whole)


def cosine_sine(angle: int) -> tuple[float, float]:
    """Of an angle of angle / 2^64 circles."""
    quarter = (angle + 2**61) // 2**62 % 4
    rest = (angle - quarter * 2**62) % CIRCLE
    rest -= CIRCLE if rest >= CIRCLE // 2 else 0
    z = (rest // 2**11) * (6.283185307179586 / 2.0**53)
    w = z * z
    s, c = -1 / math.factorial(15), 1 / math.factorial(16)
    for k in range(13, 0, -2):
        s = s * w + (1 if k % 4 == 1 else -1) / math.factorial(k)
    for k in range(14, -1, -2):
        c = c * w + (1 if k % 4 == 0 else -1) / math.factorial(k)
    s *= z
    return ((c, s), (-s, c), (-c, -s), (s, -c))[quarter]
