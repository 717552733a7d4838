"""Transform whiten, its inverse. FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader, require
from planes import Plane, Settings


class Whiten:
    def __init__(self, settings: Settings):
        values = settings.parameters
        self._step = np.float32(values[1]), np.float32(values[2])
        self._on = values[3], values[4]
        self._artefact = settings.artefact

    def inverse(self, plane: Plane, values: np.ndarray, side: ByteReader) -> np.ndarray:
        """Of [token, head, dim] float32."""
        del side
        if not self._on[plane.is_v]:
            return values
        require((plane.layer, plane.is_v) in self._artefact.whitening,
                "an artefact without whitening of the plane")
        mean, matrix = self._artefact.whitening[plane.layer, plane.is_v]
        require(len(mean) == plane.heads * plane.dim, "a whitening of another shape")
        groups, components, columns = matrix.shape
        rows = values.reshape(plane.tokens, groups, components) * self._step[plane.is_v]
        sums = np.zeros((plane.tokens, groups, columns), np.float32)
        for i in range(components):
            sums += rows[:, :, i, None] * matrix[:, i]
        return (sums + mean.reshape(groups, columns)).reshape(values.shape)
