"""Quantizers none, lossless and uniform: a plane's values from symbols and side bytes.
FORMAT_STAGES.md."""

import math

import numpy as np

from byte_reader import ByteReader, Corrupt, require
from frame import ELEMENT_BYTES
from planes import Extent, Plane, Settings

LARGEST = np.finfo(np.float32).max


class NoneQuantizer:
    """Native: the elements' bytes are the symbols."""

    native = True

    def __init__(self, settings: Settings):
        pass

    def symbols(self, plane: Plane) -> Extent:
        """The plane's symbols."""
        return Extent(plane.tokens, plane.heads * plane.dim * ELEMENT_BYTES[plane.dtype], 256)

    def values(self, plane: Plane, symbols: np.ndarray, side: ByteReader) -> np.ndarray:
        """[token, head * dim]; native: as bits."""
        return symbols.view(f"<u{ELEMENT_BYTES[plane.dtype]}")


class LosslessQuantizer:
    """Native: eight bits of each element are the symbol, the rest lies in the side bytes."""

    native = True

    def __init__(self, settings: Settings):
        pass

    def symbols(self, plane: Plane) -> Extent:
        return Extent(plane.tokens, plane.heads * plane.dim, 256)

    def values(self, plane: Plane, symbols: np.ndarray, side: ByteReader) -> np.ndarray:
        form = side.number("B")
        require(form <= 1, "unknown form of lossless side bytes")
        e = symbols.astype(np.uint32)
        if form == 1:
            level = np.frombuffer(side.take(symbols.shape[1]), np.uint8)
            e = (e + level) % 256
        r = np.frombuffer(side.take(e.size), np.uint8).reshape(e.shape).astype(np.uint32)
        bits = (r & 0x80) << 8 | e << 7 | r & 0x7F
        if plane.dtype != "float32":
            return bits.astype("<u2")
        low = np.frombuffer(side.take(2 * e.size), "<u2").reshape(e.shape)
        return (bits << 16 | low).astype("<u4")


CHANNEL, TOKEN, GROUP, TENSOR = range(4)
MINMAX, SYMMETRIC, FIXED = range(3)


class UniformQuantizer:
    """Real: zero + point * step, with a grid per channel, token, group or plane."""

    native = False

    def __init__(self, settings: Settings):
        parameters = settings.parameters
        self._levels = parameters[1], parameters[2]
        self._axis = parameters[3], parameters[4]
        self._group = parameters[5], parameters[6]
        self._raw_first = parameters[7]
        self._range = parameters[8], parameters[9]
        self._step = parameters[10], parameters[11]
        self._means = parameters[14], parameters[15]
        require(settings.version > 1 or TENSOR not in self._axis, "an axis of a later version")
        for levels, kind, width in zip(self._levels, self._range, (parameters[12],
                                                                  parameters[13])):
            require(width == 0 or kind == MINMAX or levels % 2 == 1, "a dead zone without a zero")

    def _has_raw_token(self, plane: Plane) -> bool:
        return bool(self._raw_first) and plane.first_token == 0

    def symbols(self, plane: Plane) -> Extent:
        rows = plane.tokens - self._has_raw_token(plane)
        return Extent(rows, plane.heads * plane.dim, self._levels[plane.is_v])

    def values(self, plane: Plane, symbols: np.ndarray, side: ByteReader) -> np.ndarray:
        parts = []
        if self._has_raw_token(plane):
            raw_form = side.number("B")
            require(raw_form <= 1, "unknown form of the raw token")
            kind = np.dtype("<f4" if raw_form else "<f2")
            raw = np.frombuffer(side.take(symbols.shape[1] * kind.itemsize), kind)
            parts.append(raw.astype(np.float32)[np.newaxis])
        if len(symbols):
            parts.append(self._on_grids(plane, symbols, side))
        return np.concatenate(parts)

    def _on_grids(self, plane: Plane, symbols: np.ndarray, side: ByteReader) -> np.ndarray:
        levels, fixed = self._levels[plane.is_v], self._range[plane.is_v] == FIXED
        if fixed:
            shift = 0
            step = np.float32(self._step[plane.is_v])
            zero = _symmetric_zero(levels, step)
        else:
            shift = side.number("b")
            require(shift in (0, -16, 64), "unknown shift")
            zero, step = self._grids(plane, symbols.shape, side)
        points = _read_points(levels, side) if self._means[plane.is_v] else np.arange(
            256, dtype=np.float32)
        with np.errstate(over="ignore", under="ignore"):
            values = zero + points[symbols] * step
            if shift != 0:
                values = np.clip(values * np.float32(2.0**-shift), -LARGEST, LARGEST)
        if fixed:
            _apply_escapes(values, side)
        return values

    def _grids(self, plane: Plane, shape: tuple[int, int],
               side: ByteReader) -> tuple[np.ndarray, np.ndarray]:
        """(zero, step), that broadcast to the values"""
        base = side.number("h")
        rows, columns = shape
        axis, group = self._axis[plane.is_v], min(self._group[plane.is_v], plane.dim)
        levels = self._levels[plane.is_v]
        per_head = -(-plane.dim // group)
        ranges = {CHANNEL: (1, columns), TOKEN: (rows, 1), GROUP: (rows, plane.heads * per_head),
                  TENSOR: (1, 1)}
        count = math.prod(ranges[axis])
        if self._range[plane.is_v] == SYMMETRIC:
            codes = [_read_symmetric(side, base, levels) for _ in range(count)]
        else:
            codes = [_read_grid(side, base) for _ in range(count)]
        zero, step = np.array(codes, np.float32).T.reshape(2, *ranges[axis])
        if axis == GROUP:
            range_of = np.arange(columns) // plane.dim * per_head + np.arange(
                columns) % plane.dim // group
            zero, step = zero[:, range_of], step[:, range_of]
        return zero, step


def _short_step(code: int, base: int) -> float:
    try:
        return math.ldexp(1 + (code - 2) % 16 / 16, base + (code - 2) // 16)
    except OverflowError as error:
        raise Corrupt("a step beyond binary32") from error


def _read_grid(side: ByteReader, base: int) -> tuple[np.float32, np.float32]:
    """(zero, step)"""
    code = side.number("B")
    if code >= 2:
        half_steps = side.signed()
        require(abs(half_steps) <= 32768, "a grid too far from zero")
        step = _short_step(code, base)
        zero = half_steps * step / 2
    else:
        zero = side.number("f")
        step = side.number("f") if code == 1 else 0.0
    return _checked(zero, step)


def _read_symmetric(side: ByteReader, base: int, levels: int) -> tuple[np.float32, np.float32]:
    """(zero, step)"""
    code = side.number("B")
    if code == 0:
        return np.float32(0), np.float32(0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        step = np.float32(side.number("f") if code == 1 else _short_step(code, base))
        zero = _symmetric_zero(levels, step)
    return _checked(zero, step)


def _symmetric_zero(levels: int, step: np.float32) -> np.float32:
    return np.float32(0) - np.float32(levels - 1) * (step * np.float32(0.5))


def _checked(zero: float, step: float) -> tuple[np.float32, np.float32]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        zero, step = np.float32(zero), np.float32(step)
        finite = np.isfinite([zero, step, zero + np.float32(255) * step]).all()
    require(bool(finite) and step >= 0, "a grid beyond binary32")
    return zero, step


def _read_points(levels: int, side: ByteReader) -> np.ndarray:
    """[256] where each symbol lies, in steps from zero"""
    points = np.arange(256, dtype=np.float32)
    form = side.number("B")
    require(form <= 1, "unknown form of means")
    if form == 1:
        points[:levels] += np.frombuffer(side.take(levels), np.int8) / np.float32(256)
    return points


def _apply_escapes(values: np.ndarray, side: ByteReader) -> None:
    flat = values.reshape(-1)
    index = -1
    for _ in range(side.varint()):
        index += side.varint() + 1
        require(index < flat.size, "an escape beyond its plane")
        value = side.number("f")
        require(math.isfinite(value), "an escape that is not finite")
        flat[index] = value
