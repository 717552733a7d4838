"""Quantizer uniform, versions 1 to 3: a plane's values from symbols and side bytes.
FORMAT_STAGES.md."""

import math

import numpy as np

from byte_reader import ByteReader, Corrupt, require
from planes import Extent, Plane, Settings

CHANNEL, TOKEN, GROUP, TENSOR = range(4)
MINMAX, SYMMETRIC, FIXED = range(3)
MEAN = 1
LARGEST = np.finfo(np.float32).max

Grid = tuple[np.float32, np.float32]  # zero and step


class UniformQuantizer:
    """Real: zero + point of the symbol * step, with a grid per channel, token, group or plane."""

    native = False

    def __init__(self, settings: Settings):
        values = settings.parameters
        self._levels = int(values[1]), int(values[2])
        self._axis = values[3], values[4]
        self._group = int(values[5]), int(values[6])
        self._raw_first = values[7]
        self._range = values[8], values[9]
        self._step = values[10], values[11]
        self._reconstruct = values[14], values[15]
        self._group_tokens = int(values[16]), int(values[17])
        self._float16 = bool(values[18])
        require(settings.version > 1 or TENSOR not in self._axis, "axis tensor in version 1")
        for is_v, dead_zone in enumerate((values[12], values[13])):
            require(not dead_zone or self._range[is_v] == MINMAX or self._levels[is_v] % 2 == 1,
                    "a dead zone around 0 needs an odd number of levels")
            require(not dead_zone or self._range[is_v] != MINMAX or not self._float16,
                    "a dead zone needs short grids")

    def _has_raw_token(self, plane: Plane) -> bool:
        return bool(self._raw_first) and plane.first_token == 0

    def symbols(self, plane: Plane) -> Extent:
        rows = plane.tokens - self._has_raw_token(plane)
        return Extent(rows, plane.heads * plane.dim, self._levels[plane.is_v])

    def values(self, plane: Plane, symbols: np.ndarray, side: ByteReader) -> np.ndarray:
        parts = [read_raw_token(symbols.shape[1], side)] if self._has_raw_token(plane) else []
        if len(symbols):
            parts.append(self._on_grids(plane, symbols, side))
        return np.concatenate(parts)

    def _on_grids(self, plane: Plane, symbols: np.ndarray, side: ByteReader) -> np.ndarray:
        shift = 0
        if self._range[plane.is_v] == FIXED:
            zero, step = self._fixed_grid(plane.is_v)
        else:
            shift = side.number("b")
            require(is_shift(shift, self._float16), "unknown shift")
            zero, step = self._read_grids(plane, symbols.shape, side)
        points = np.arange(self._levels[plane.is_v], dtype=np.float32)
        if self._reconstruct[plane.is_v] == MEAN:
            points = read_means(points, side)
        with np.errstate(over="ignore", under="ignore"):
            values = zero + points[symbols] * step
            if shift != 0:
                values = np.clip(values * np.float32(2.0**-shift), -LARGEST, LARGEST)
        if self._range[plane.is_v] == FIXED:
            read_escapes(values, side)
        return values

    def _read_grids(self, plane: Plane, shape: tuple[int, int],
                    side: ByteReader) -> tuple[np.ndarray, np.ndarray]:
        """zero and step, to be broadcast to [row, column]"""
        rows, columns = shape
        axis, group = self._axis[plane.is_v], min(self._group[plane.is_v], plane.dim)
        block = self._group_tokens[plane.is_v] or rows
        per_head = -(-plane.dim // group)
        ranges = {CHANNEL: (-(-rows // block), columns), TOKEN: (rows, 1),
                  GROUP: (rows, plane.heads * per_head), TENSOR: (1, 1)}[axis]
        grids = self._read_codes(plane.is_v, math.prod(ranges), side)
        zero, step = np.array(grids, np.float32).T.reshape(2, *ranges)
        if axis == GROUP:
            column = np.arange(columns)
            range_of = column // plane.dim * per_head + column % plane.dim // group
            zero, step = zero[:, range_of], step[:, range_of]
        if axis == CHANNEL:
            zero, step = zero[np.arange(rows) // block], step[np.arange(rows) // block]
        return zero, step

    def _read_codes(self, is_v: bool, count: int, side: ByteReader) -> list[Grid]:
        symmetric, levels = self._range[is_v] == SYMMETRIC, self._levels[is_v]
        if not symmetric:
            return read_grids(side, count, self._float16)
        if self._float16:
            return [_symmetric_grid(_read_half_step(side), levels) for _ in range(count)]
        base = side.number("h")
        return [_read_symmetric(side, base, levels) for _ in range(count)]

    def _fixed_grid(self, is_v: bool) -> Grid:
        return _symmetric_grid(np.float32(self._step[is_v]), self._levels[is_v])


def is_shift(shift: int, float16: bool) -> bool:
    return -114 <= shift <= 126 if float16 else shift in (0, -16, 64)


def read_grids(side: ByteReader, count: int, float16: bool) -> list[Grid]:
    """Of range minmax."""
    if float16:
        return [_checked(side.number("e"), float(_read_half_step(side))) for _ in range(count)]
    base = side.number("h")
    return [_read_grid(side, base) for _ in range(count)]


def _read_grid(side: ByteReader, base: int) -> Grid:
    code = side.number("B")
    if code >= 2:
        half_steps = side.signed()
        require(abs(half_steps) <= 32768, "a grid too far from zero")
        step = _short_step(code, base)
        return _checked(half_steps * step / 2, step)
    zero = side.number("f")
    return _checked(zero, side.number("f") if code == 1 else 0.0)


def _read_symmetric(side: ByteReader, base: int, levels: int) -> Grid:
    code = side.number("B")
    if code == 0:
        return np.float32(0), np.float32(0)
    step = side.number("f") if code == 1 else _short_step(code, base)
    with np.errstate(over="ignore", under="ignore"):
        return _symmetric_grid(np.float32(step), levels)


def _read_half_step(side: ByteReader) -> np.float32:
    step = side.number("e")
    require(math.copysign(1, step) > 0, "a negative step")
    return np.float32(step)


def _symmetric_grid(step: np.float32, levels: int) -> Grid:
    return _checked(-(levels - 1) * (float(step) / 2), float(step))


def _short_step(code: int, base: int) -> float:
    try:
        return math.ldexp(1 + (code - 2) % 16 / 16, base + (code - 2) // 16)
    except OverflowError as error:
        raise Corrupt("a step beyond binary32") from error


def _checked(zero: float, step: float) -> Grid:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = np.float32(zero) + np.float32(0), np.float32(step)  # -0 becomes 0
        finite = np.isfinite([*rounded, rounded[0] + np.float32(255) * rounded[1]]).all()
    require(bool(finite) and rounded[1] >= 0, "a grid beyond binary32")
    return rounded


def read_raw_token(columns: int, side: ByteReader) -> np.ndarray:
    """[1, column]: the request's first token, which has no symbols."""
    raw_form = side.number("B")
    require(raw_form <= 1, "unknown form of the raw token")
    kind = np.dtype("<f4" if raw_form else "<f2")
    raw = np.frombuffer(side.take(columns * kind.itemsize), kind)
    return raw.astype(np.float32)[np.newaxis]


def read_means(points: np.ndarray, side: ByteReader) -> np.ndarray:
    form = side.number("B")
    require(form <= 1, "unknown form of means")
    if form == 0:
        return points
    means = np.frombuffer(side.take(len(points)), np.int8)
    return points + means.astype(np.float32) / np.float32(256)


def read_escapes(values: np.ndarray, side: ByteReader) -> None:
    flat = values.reshape(-1)
    at = -1
    for _ in range(side.varint(0, flat.size)):
        at += 1 + side.varint(0, flat.size)
        require(at < flat.size, "an escape beyond the plane")
        flat[at] = side.number("f")
        require(bool(np.isfinite(flat[at])), "an escape that is not finite")
