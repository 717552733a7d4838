"""Transform affine, its inverse. FORMAT_STAGES.md."""

import math

import numpy as np

from byte_reader import ByteReader, require
from planes import Plane, Settings

CALIBRATED = 1


class Affine:
    def __init__(self, settings: Settings):
        values = settings.parameters
        self._calibrated = values[1] == CALIBRATED
        self._center = values[2], values[3]
        self._scale = values[4], values[5]
        self._artefact = settings.artefact

    def inverse(self, plane: Plane, values: np.ndarray, side: ByteReader) -> np.ndarray:
        """Of [token, head, dim] float32."""
        center, scale = self._center[plane.is_v], self._scale[plane.is_v]
        if not center and not scale:
            return values
        columns = plane.heads * plane.dim
        mean, deviation = np.zeros(columns, np.float32), np.ones(columns, np.float32)
        if self._calibrated:
            require((plane.layer, plane.is_v) in self._artefact.statistics,
                    "an artefact without statistics of the plane")
            statistics = self._artefact.statistics[plane.layer, plane.is_v]
            require(len(statistics[0]) == columns, "statistics of another shape")
            mean = statistics[0] if center else mean
            deviation = statistics[1] if scale else deviation
        elif plane.first_token == 0 and plane.tokens == 1:
            return values
        else:
            mean = _read_means(side, columns) if center else mean
            deviation = _read_scales(side, columns) if scale else deviation
        shape = (plane.heads, plane.dim)
        return values * deviation.reshape(shape) + mean.reshape(shape)


def _read_means(side: ByteReader, columns: int) -> np.ndarray:
    exponent = side.number("h")
    require(-149 <= exponent <= 104, "exponent of means")
    means = [side.signed() for _ in range(columns)]
    require(all(abs(mean) < 2**24 for mean in means), "a mean out of range")
    return np.array([math.ldexp(mean, exponent) for mean in means], np.float32)


def _read_scales(side: ByteReader, columns: int) -> np.ndarray:
    base = side.number("h")
    require(-126 <= base <= 96, "exponent of scales")
    codes = side.take(columns)
    return np.array([math.ldexp(1 + code % 8 / 8, base + code // 8) for code in codes], np.float32)
