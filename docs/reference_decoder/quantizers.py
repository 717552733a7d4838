"""Quantizers none and lossless: a plane's elements from symbols and side bytes. FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader, require
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
        r = np.frombuffer(side.take(e.size), np.uint8).reshape(e.shape).astype(np.uint32)
        bits = (r & 0x80) << 8 | e << 7 | r & 0x7F
        if plane.dtype != "float32":
            return bits.astype("<u2")
        low = np.frombuffer(side.take(2 * e.size), "<u2").reshape(e.shape)
        return (bits << 16 | low).astype("<u4")
