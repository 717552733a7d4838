"""Quantizer mixed: levels by head and token class. FORMAT_STAGES.md."""

import math

import numpy as np

from byte_reader import ByteReader, require
from planes import Extent, Plane, Settings
from uniform import LARGEST, MEAN, is_shift, read_grids, read_means, read_raw_token

CHANNEL, TOKEN, TENSOR = range(3)
NOMINAL, CLASSES, DROPPED = 6, 13, 255


class MixedQuantizer:
    """Real: one range per channel, token or plane, and a grid per class over it."""

    native = False

    def __init__(self, settings: Settings):
        self._values = {number: int(value) for number, value in settings.parameters.items()}
        self._low_share = settings.parameters[5]
        self._layers = settings.model_layers
        self._scores = settings.artefact.head_scores if self._low_share > 0 else {}
        self._classes: dict[tuple[int, bool], np.ndarray] = {}
        require(self._low_share == 0 or bool(self._scores), "an artefact without head scores")

    def _has_raw_token(self, plane: Plane) -> bool:
        return bool(self._values[17]) and plane.first_token == 0

    def _rows(self, plane: Plane) -> int:
        return plane.tokens - self._has_raw_token(plane)

    def read_classes(self, planes: list[Plane], section: ByteReader) -> None:
        """Of planes with tokens; the rest of the frame depends on them."""
        if section.left:
            rows = {(plane.layer, plane.is_v): self._rows(plane) for plane in planes}
            self._classes = read_token_classes(section, rows)

    def _classes_of(self, plane: Plane) -> np.ndarray:
        nominal = np.full(self._rows(plane), NOMINAL)
        return self._classes.get((plane.layer, plane.is_v), nominal)

    def dropped(self, plane: Plane) -> np.ndarray:
        """[token] of the plane."""
        raw = np.zeros(int(self._has_raw_token(plane)), bool)
        return np.concatenate([raw, self._classes_of(plane) == DROPPED])

    def _levels(self, plane: Plane) -> tuple[int, int]:
        """Of high and low heads."""
        def parameter(number: int) -> int:
            return self._values[number + plane.is_v]
        if plane.layer < parameter(7):
            return parameter(9), parameter(9)
        if self._layers - plane.layer <= parameter(11):
            return parameter(13), parameter(13)
        return parameter(1), parameter(3)

    def _low_heads(self, plane: Plane) -> np.ndarray:
        high, low = self._levels(plane)
        mask = np.zeros(plane.heads, bool)
        if high == low or plane.layer not in self._scores:
            return mask
        layers = list(self._scores) if self._values[6] else [plane.layer]
        ranked = sorted((self._scores[layer][head], layer, head)
                        for layer in layers for head in range(len(self._scores[layer])))
        count = math.floor(self._low_share * len(ranked) + 0.5)
        for _, layer, head in ranked[:count]:
            if layer == plane.layer:
                mask[head] = True
        return mask

    def _runs(self, plane: Plane) -> list[tuple[np.ndarray, np.ndarray, int]]:
        """Rows, heads and levels of each."""
        low = self._low_heads(plane)
        classes = self._classes_of(plane)
        runs = []
        for is_low, levels in enumerate(self._levels(plane)):
            heads = np.flatnonzero(low == bool(is_low))
            for number in range(CLASSES) if len(heads) else []:
                rows = np.flatnonzero(classes == number)
                if len(rows):
                    runs.append((rows, heads, _levels_of_class(levels, number)))
        return runs

    def runs(self, plane: Plane) -> list[Extent]:
        runs = self._runs(plane)
        if len(runs) == 1 and len(runs[0][0]) == self._rows(plane):
            classes = self._classes_of(plane)
            return [Extent(len(classes), plane.heads * plane.dim, runs[0][2], classes)]
        return [Extent(len(rows), len(heads) * plane.dim, levels) for rows, heads, levels in runs]

    def values(self, plane: Plane, symbols: list[np.ndarray], side: ByteReader) -> np.ndarray:
        values = np.zeros((plane.tokens, plane.heads, plane.dim), np.float32)
        raw = int(self._has_raw_token(plane))
        if raw:
            row = read_raw_token(plane.heads * plane.dim, side)
            values[0] = row.reshape(plane.heads, plane.dim)
        kept = np.flatnonzero(self._classes_of(plane) != DROPPED)
        if len(kept):
            self._on_grids(plane, values[raw:], kept, symbols, side)
        return values

    def _on_grids(self, plane: Plane, values: np.ndarray, kept: np.ndarray,
                  symbols: list[np.ndarray], side: ByteReader) -> None:
        shift = side.number("b")
        float16 = bool(self._values[20])
        require(is_shift(shift, float16), "unknown shift")
        axis = self._values[15 + plane.is_v]
        shape = {CHANNEL: (1, plane.heads, plane.dim), TOKEN: (len(kept), 1, 1),
                 TENSOR: (1, 1, 1)}[axis]
        grids = read_grids(side, math.prod(shape), float16)
        pair = np.zeros((2, *values.shape), np.float32)
        pair[:, kept] = np.array(grids, np.float32).T.reshape(2, *shape)
        nominal = self._levels(plane)[0]
        for (rows, heads, levels), coded in zip(self._runs(plane), symbols):
            points = np.arange(levels, dtype=np.float32)
            if self._values[18 + plane.is_v] == MEAN:
                points = read_means(points, side)
            place = np.ix_(rows, heads)
            zero, step = pair[0][place], pair[1][place]
            with np.errstate(over="ignore", under="ignore"):
                if levels > nominal:
                    zero = zero - step / np.float32(4)
                spanned = nominal - (0.5 if levels > nominal else 1)
                step = step * (np.float32(spanned) / np.float32(levels - 1))
                found = zero + points[coded].reshape(step.shape) * step
                if shift != 0:
                    found = np.clip(found * np.float32(2.0**-shift), -LARGEST, LARGEST)
            values[place] = found


def _levels_of_class(levels: int, number: int) -> int:
    steps = math.ceil((levels - 1) * 2.0**((number - NOMINAL) / 2))
    return min(max(1 + steps, 2), 256)


def read_token_classes(section: ByteReader, rows: dict[tuple[int, bool], int]) -> dict[
        tuple[int, bool], np.ndarray]:
    """Of planes by layer and is_v, in coding order, and their rows."""
    classes: dict[tuple[int, bool], np.ndarray] = {}
    before = None
    for plane, count in rows.items():
        if count:
            before = _read_classes(section, count, before)
            classes[plane] = before
    return classes


def _read_classes(section: ByteReader, rows: int, before: np.ndarray | None) -> np.ndarray:
    form = section.number("B")
    if form == 0:
        return np.full(rows, NOMINAL)
    if form == 1:
        require(before is not None and len(before) >= rows, "no plane before has the rows")
        return before[len(before) - rows:]
    if form == 2:
        stretches: list[int] = []
        while len(stretches) < rows:
            number = _checked_class(section.number("B"))
            stretches += [number] * section.varint(1, rows - len(stretches))
        return np.array(stretches)
    require(form == 3, "unknown form of classes")
    count = section.number("B")
    require(2 <= count <= CLASSES + 1, "number of classes")
    listed = [_checked_class(section.number("B")) for _ in range(count)]
    require(listed == sorted(set(listed)), "classes out of order")
    bits = (count - 1).bit_length()
    packed = np.unpackbits(np.frombuffer(section.take((rows * bits + 7) // 8), np.uint8),
                           bitorder="little")[:rows * bits].reshape(rows, bits)
    index = packed @ (1 << np.arange(bits))
    require(bool((index < count).all()), "an index beyond the classes")
    return np.array(listed)[index]


def _checked_class(number: int) -> int:
    require(number < CLASSES or number == DROPPED, "unknown class")
    return number
