"""Transform predict, its inverse. FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader, require
from calibration import plane_columns, predictor_sources
from planes import Plane, Settings

BLOCK = 512
LIMIT = 16383


class Predict:
    def __init__(self, settings: Settings):
        values = settings.parameters
        self._on = values[1], values[2]
        self._artefact = settings.artefact
        self._decoded: dict[tuple[int, bool], tuple[int, np.ndarray]] = {}  # first token, rows

    def inverse(self, plane: Plane, values: np.ndarray, side: ByteReader) -> np.ndarray:
        """Of [token, head, dim] float32; planes come in coding order."""
        del side
        key = plane.layer, plane.is_v
        rows = values.reshape(plane.tokens, -1)
        if self._on[plane.is_v] and key in self._artefact.predictors:
            rows = self._predicted(plane, rows.shape[1]) + rows
        units = np.where(np.isnan(rows), LIMIT, np.clip(rows * np.float32(64), -LIMIT, LIMIT))
        self._decoded[key] = plane.first_token, np.rint(units).astype(np.int64)
        return rows.reshape(values.shape)

    def _predicted(self, plane: Plane, columns: int) -> np.ndarray:
        scale, weights = self._artefact.predictors[plane.layer, plane.is_v]
        before = self._inputs(plane)
        inputs = before.shape[1]
        require(weights.shape == (columns, inputs), "a predictor of another shape")
        total = np.zeros((plane.tokens, columns), np.float32)
        for begin in range(0, inputs, BLOCK):
            block = slice(begin, begin + BLOCK)
            total += (before[:, block] @ weights[:, block].T.astype(np.int64)).astype(np.float32)
        return total * scale

    def _inputs(self, plane: Plane) -> np.ndarray:
        """[token, input]"""
        parts = []
        for layer, is_v in predictor_sources(self._artefact, plane.layer, plane.is_v):
            part = np.zeros((plane.tokens, plane_columns(self._artefact, layer, is_v)), np.int64)
            if (layer, is_v) in self._decoded:
                first, rows = self._decoded[layer, is_v]
                begin = max(first, plane.first_token)
                end = min(first + len(rows), plane.first_token + plane.tokens)
                if begin < end:
                    part[begin - plane.first_token:end - plane.first_token] = (
                        rows[begin - first:end - first])
            parts.append(part)
        return np.concatenate(parts, 1)
