"""Quantizer steps: steps that both sides know, by token class. FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader, require, unzigzag
from mixed import CLASSES, DROPPED, NOMINAL, read_token_classes
from planes import Extent, Plane, Settings
from uniform import read_escapes

ALPHABET, CENTRE = 255, 127
PLAIN, CODED = range(2)
PARTS, FLOAT = range(2)
LEAST_STATE = 2**16


class StepsQuantizer:
    """Real: multiples of the step of a token's class."""

    native = False

    def __init__(self, settings: Settings):
        self._raw_first = bool(settings.parameters[1])
        self._tables = settings.artefact and settings.artefact.code_tables
        self._classes: dict[tuple[int, bool], np.ndarray] = {}

    def _raw_rows(self, plane: Plane) -> int:
        return int(self._raw_first and plane.first_token == 0)

    def read_classes(self, planes: list[Plane], section: ByteReader) -> None:
        """Of planes with tokens; the rest of the frame depends on them."""
        if not section.left:
            return
        rows = {(plane.layer, plane.is_v): plane.tokens - self._raw_rows(plane)
                for plane in planes}
        form = section.number("B")
        if form == PLAIN:
            self._classes = read_token_classes(section, rows)
            return
        require(form == CODED and bool(self._tables) and self._tables.classes is not None,
                "unknown form of classes, or no tables")
        self._read_coded(section, rows)

    def _read_coded(self, section: ByteReader, rows: dict[tuple[int, bool], int]) -> None:
        state = section.number("I")
        require(state >= LEAST_STATE, "a state out of range")
        for (layer, is_v), count in rows.items():
            before = self._classes.get((layer - 1, is_v), np.empty(0, int))
            contexts = [before[len(before) - left] if left <= len(before) else CLASSES
                        for left in range(count, 0, -1)]
            classes = []
            for context in contexts:
                table = self._tables.classes[int(is_v)][context]
                ends = np.cumsum(table)
                slot = state % 4096
                number = int(np.searchsorted(ends, slot, side="right"))
                frequency = int(table[number])
                state = frequency * (state // 4096) + slot - int(ends[number]) + frequency
                if state < LEAST_STATE:
                    state = state * 2**16 + section.number("H")
                classes.append(number)
            self._classes[layer, is_v] = np.array(classes, int)
        require(state == LEAST_STATE, "a stream that does not end where it began")

    def _classes_of(self, plane: Plane) -> np.ndarray:
        nominal = np.full(plane.tokens - self._raw_rows(plane), NOMINAL)
        return self._classes.get((plane.layer, plane.is_v), nominal)

    def dropped(self, plane: Plane) -> np.ndarray:
        """[token] of the plane."""
        raw = np.zeros(self._raw_rows(plane), bool)
        return np.concatenate([raw, self._classes_of(plane) == DROPPED])

    def symbols(self, plane: Plane) -> Extent:
        classes = self._classes_of(plane)
        return Extent(len(classes), plane.heads * plane.dim, ALPHABET, classes)

    def values(self, plane: Plane, symbols: np.ndarray, side: ByteReader) -> np.ndarray:
        """[token, head * dim]"""
        values = np.empty((plane.tokens, plane.heads * plane.dim), np.float32)
        raw = self._raw_rows(plane)
        if raw:
            values[0] = _read_raw_row(side, values.shape[1])
        steps = np.array([_step(number) for number in self._classes_of(plane)], np.float32)
        coded = (symbols.astype(np.float32) - CENTRE) * steps[:, np.newaxis]
        read_escapes(coded, side)
        values[raw:] = coded
        return values


def _step(number: int) -> np.float32:
    """Of a class, rounded to binary32."""
    return np.float32(0.0 if number == DROPPED else 2.0**((NOMINAL - number) / 2))


def _read_raw_row(side: ByteReader, columns: int) -> np.ndarray:
    form = side.number("B")
    if form == PARTS:
        return np.array([unzigzag(side.varint(0, 2**24)) / 128 for _ in range(columns)],
                        np.float32)
    require(form == FLOAT, "unknown form of a raw row")
    row = np.frombuffer(side.take(4 * columns), "<f4")
    require(bool(np.isfinite(row).all()), "a raw value that is not finite")
    return row

