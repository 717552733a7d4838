"""Codec rans: plane headers, packed planes, one interleaved stream. FORMAT_STAGES.md."""

import numpy as np

from byte_reader import ByteReader, require
from planes import Extent, Settings
from symbol_codecs import unpack

TOTAL = 4096
LOWEST = 65536
PACKED, CONSTANT, NEW_TABLE = 0, 1, 2
LAST_MODE = 18

Table = list[tuple[int, int, int]]  # per slot: symbol, its frequency, slot - its start


def decode_rans(section: ByteReader, extents: list[Extent], settings: Settings) -> list[np.ndarray]:
    planes = [np.zeros(extent.size, np.uint8) for extent in extents]
    present = [index for index, extent in enumerate(extents)
               if extent.size and extent.alphabet > 1]
    packed = []
    coded: list[tuple[int, Table]] = []
    sent: list[tuple[int, Table]] = []  # (highest symbol, table)
    for index in present:
        mode = section.number("B")
        require(mode <= LAST_MODE, "unknown rans mode")
        if mode == PACKED:
            packed.append(index)
        elif mode == CONSTANT:
            planes[index][:] = section.number("B")
        else:
            if mode == NEW_TABLE:
                sent.append(_read_table(section))
            back = max(mode - 2, 1)
            require(back <= len(sent), "a table that was not sent")
            last, table = sent[-back]
            require(last < extents[index].alphabet, "a table beyond the alphabet")
            coded.append((index, table))
    for index in packed:
        planes[index] = unpack(section, extents[index].size, extents[index].alphabet)
    if coded:
        _decode_stream(section, [(planes[index], table) for index, table in coded])
    return planes


def _read_table(section: ByteReader) -> tuple[int, Table]:
    bits = _Bits(section)
    last = bits.number(8)
    frequencies = []
    order = 0
    left = TOTAL
    for _ in range(last):
        prefix = 0
        while bits.number(1):
            prefix += 1
            require(prefix <= 12, "a frequency too large")
        width = order + prefix
        frequency = bits.number(width) + 2**width - 2**order
        left -= frequency
        require(left > 0, "frequencies add up to 4096 too early")
        frequencies.append(frequency)
        order = frequency.bit_length()
    require(left < TOTAL, "a table of one symbol")
    frequencies.append(left)
    bits.end()
    return last, [(symbol, frequency, offset) for symbol, frequency in enumerate(frequencies)
                  for offset in range(frequency)]


class _Bits:
    """Bits of a section, the lowest of each byte first."""

    def __init__(self, section: ByteReader):
        self._section = section
        self._byte = 0
        self._left = 0

    def number(self, width: int) -> int:
        value = 0
        for index in range(width):
            if self._left == 0:
                self._byte, self._left = self._section.number("B"), 8
            value |= (self._byte & 1) << index
            self._byte >>= 1
            self._left -= 1
        return value

    def end(self) -> None:
        require(self._byte == 0, "bits after a table are not zero")


def _decode_stream(section: ByteReader, planes: list[tuple[np.ndarray, Table]]) -> None:
    lanes_log2 = section.number("B")
    require(lanes_log2 <= 5, "too many rans lanes")
    lanes = 1 << lanes_log2
    states = [section.number("I") for _ in range(lanes)]
    require(section.left % 2 == 0, "half a word at the end of the rans stream")
    words = np.frombuffer(section.take(section.left), "<u2").tolist()
    at = 0
    for symbols, table in planes:
        for index in range(len(symbols)):
            state = states[index % lanes]
            symbols[index], frequency, offset = table[state % TOTAL]
            state = frequency * (state // TOTAL) + offset
            if state < LOWEST:
                require(at < len(words), "the rans stream ends early")
                state = state * LOWEST + words[at]
                at += 1
            states[index % lanes] = state
    require(at == len(words), "rans words left over")
    require(all(state == LOWEST for state in states), "rans states do not end at 65536")
