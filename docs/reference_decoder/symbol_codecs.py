"""Codecs none, bitpack and zstd: the symbols of all planes from one section. FORMAT_STAGES.md."""

import functools
from fractions import Fraction

import numpy as np
import zstandard

from byte_reader import ByteReader, Corrupt, require
from planes import Extent, Settings


def decode_none(section: ByteReader, extents: list[Extent], settings: Settings | None) -> list[np.ndarray]:
    return [np.frombuffer(section.take(extent.size), np.uint8) for extent in extents]


def decode_bitpack(section: ByteReader, extents: list[Extent],
                   settings: Settings | None) -> list[np.ndarray]:
    return [unpack(section, extent.size, extent.alphabet) for extent in extents]


def decode_zstd(section: ByteReader, extents: list[Extent], settings: Settings | None) -> list[np.ndarray]:
    form = section.number("B")
    require(form <= 1, "unknown zstd form")
    data = section.take(section.left)
    if form == 1:
        data = _decompress(data, sum(extent.size for extent in extents))
    plain = ByteReader(data)
    planes = decode_none(plain, extents, None)
    plain.end("the symbols")
    return planes


def _decompress(data: bytes, expected: int) -> bytes:
    try:
        about = zstandard.get_frame_parameters(data)
        require(about.content_size == expected and about.dict_id == 0, "zstd frame header")
        decoder = zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()
        plain = decoder.decompress(data)
    except zstandard.ZstdError as error:
        raise Corrupt(f"zstd: {error}") from error
    require(decoder.eof and not decoder.unused_data, "not one whole zstd frame")
    return plain


@functools.cache
def block_of(alphabet: int) -> tuple[int, int]:
    """(k, w): k symbols in w bytes, the fewest bytes per symbol."""
    def largest_k(w: int) -> int:
        k = 0
        while alphabet**(k + 1) <= 2**(8 * w):
            k += 1
        return k
    blocks = [(largest_k(w), w) for w in range(1, 8)]
    return min(blocks, key=lambda block: Fraction(block[1], block[0]))


def unpack(section: ByteReader, count: int, alphabet: int) -> np.ndarray:
    """One bit-packed plane."""
    if alphabet == 1:
        return np.zeros(count, np.uint8)
    k, w = block_of(alphabet)
    blocks, rest = divmod(count, k)
    symbols = _digits(section.take(blocks * w), w, k, alphabet)
    if rest:
        w = next(w for w in range(1, 8) if alphabet**rest <= 2**(8 * w))
        symbols = np.concatenate([symbols, _digits(section.take(w), w, rest, alphabet)])
    return symbols


def _digits(data: bytes, w: int, k: int, alphabet: int) -> np.ndarray:
    numbers = np.zeros((len(data) // w, 8), np.uint8)
    numbers[:, :w] = np.frombuffer(data, np.uint8).reshape(-1, w)
    numbers = numbers.view("<u8")[:, 0]
    symbols = np.empty((len(numbers), k), np.uint8)
    for index in range(k):
        symbols[:, index] = numbers % alphabet
        numbers = numbers // alphabet
    require(not numbers.any(), "a bit-packed block has too many digits")
    return symbols.reshape(-1)
