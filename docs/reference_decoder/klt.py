"""Transform klt, its inverse. FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader, require
from planes import Plane, Settings


class Klt:
    def __init__(self, settings: Settings):
        values = settings.parameters
        self._joint = values[1], values[2]
        self._on = values[3], values[4]
        self._artefact = settings.artefact

    def inverse(self, plane: Plane, values: np.ndarray, side: ByteReader) -> np.ndarray:
        """Of [token, head, dim] float32."""
        del side
        if not self._on[plane.is_v]:
            return values
        transforms = self._artefact.klt_joint if self._joint[plane.is_v] else self._artefact.klt_heads
        require((plane.layer, plane.is_v) in transforms, "an artefact without KLT of the plane")
        mean, basis = transforms[plane.layer, plane.is_v]
        require(len(mean) == plane.heads * plane.dim, "a KLT of another shape")
        groups, components, columns = basis.shape
        rows = values.reshape(plane.tokens, groups, components)
        sums = np.zeros((plane.tokens, groups, columns), np.float32)
        for i in range(components):
            sums += rows[:, :, i, None] * basis[:, i]
        return (sums + mean.reshape(groups, columns)).reshape(values.shape)
