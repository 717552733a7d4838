"""Codec lz4: symbols in pieces, each an LZ4 block or as it is. FORMAT_STAGES.md."""

import lz4.block
import numpy as np

from byte_reader import ByteReader, Corrupt, require
from planes import Extent, Settings
from symbol_codecs import decode_none

PIECE = 2**18


def decode_lz4(section: ByteReader, extents: list[Extent],
               settings: Settings) -> list[np.ndarray]:
    form = section.number("B")
    require(form <= 1, "unknown lz4 form")
    if form == 0:
        return decode_none(section, extents, settings)
    sizes = _piece_sizes(extents)
    lengths = [section.varint(1, size) for size in sizes]
    plain = b"".join(_piece(section.take(length), size)
                     for length, size in zip(lengths, sizes))
    return decode_none(ByteReader(plain), extents, settings)


def _piece_sizes(extents: list[Extent]) -> list[int]:
    sizes = [0]
    for extent in extents:
        if extent.size > PIECE:
            rows = max(1, PIECE // extent.columns)
            sizes += [min(rows, extent.rows - first) * extent.columns
                      for first in range(0, extent.rows, rows)]
            sizes.append(0)
        elif sizes[-1] + extent.size > PIECE:
            sizes.append(extent.size)
        else:
            sizes[-1] += extent.size
    return [size for size in sizes if size]


def _piece(data: bytes, size: int) -> bytes:
    if len(data) == size:
        return data
    try:
        plain = lz4.block.decompress(data, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise Corrupt(f"lz4: {error}") from error
    require(len(plain) == size, "an lz4 block of another size")
    return plain
