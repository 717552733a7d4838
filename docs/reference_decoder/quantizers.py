"""Quantizers none, lossless and fp8: a plane's values from symbols and side bytes.
FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader, require
from float8 import values_of
from frame import ELEMENT_BYTES
from planes import Extent, Plane, Settings



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
        if plane.dtype == "uint8":
            return e.astype("u1")
        if ELEMENT_BYTES[plane.dtype] == 1:
            return (e >> 1 | e << 7 & 0x80).astype("u1")
        r = np.frombuffer(side.take(e.size), np.uint8).reshape(e.shape).astype(np.uint32)
        bits = (r & 0x80) << 8 | e << 7 | r & 0x7F
        if plane.dtype != "float32":
            return bits.astype("<u2")
        low = np.frombuffer(side.take(2 * e.size), "<u2").reshape(e.shape)
        return (bits << 16 | low).astype("<u4")


CHANNEL, TOKEN, TENSOR = range(3)
NO_SCALE, POWER_OF_TWO, FLOAT = range(3)
FORMATS = "float8_e4m3fn", "float8_e5m2"
LARGEST = np.finfo(np.float32).max
LEAST_SCALE = 2.0**-126


class Fp8Quantizer:
    """Real: one-byte floats, with a scale per channel, token or plane."""

    native = False

    def __init__(self, settings: Settings):
        values = settings.parameters
        self._format = values[1], values[2]
        self._scale = values[3], values[4]
        self._axis = values[5], values[6]

    def symbols(self, plane: Plane) -> Extent:
        return Extent(plane.tokens, plane.heads * plane.dim, 256)

    def values(self, plane: Plane, symbols: np.ndarray, side: ByteReader) -> np.ndarray:
        values = values_of(FORMATS[int(self._format[plane.is_v])])[symbols]
        form = self._scale[plane.is_v]
        if form == NO_SCALE:
            return values
        rows, columns = symbols.shape
        shape = {CHANNEL: (1, columns), TOKEN: (rows, 1), TENSOR: (1, 1)}[self._axis[plane.is_v]]
        count = shape[0] * shape[1]
        if form == POWER_OF_TWO:
            exponents = np.frombuffer(side.take(count), np.int8)
            require(bool((exponents >= -126).all()), "a scale below 2^-126")
            scales = np.ldexp(np.ones(count, np.float32), exponents.astype(np.int32))
        else:
            scales = np.frombuffer(side.take(4 * count), "<f4")
            require(bool((np.isfinite(scales) & (scales >= LEAST_SCALE)).all()),
                    "a scale that is not finite or below 2^-126")
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return np.clip(values * scales.reshape(shape), -LARGEST, LARGEST)
