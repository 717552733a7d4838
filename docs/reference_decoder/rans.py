"""Codec rans, versions 1 and 2: plane headers, then pieces of packed planes and one interleaved
stream each. FORMAT_STAGES.md."""

from typing import NamedTuple

import numpy as np

from byte_reader import ByteReader, require
from planes import Extent, Settings
from rans_tables import TOTAL, Table, alias_table, plain_table, read_frequencies
from symbol_codecs import unpack

LOWEST = 65536
PIECE = 2**19
PACKED, CONSTANT, NEW_TABLE, LAST_SENT, FIRST_CLASS = 0, 1, 2, 18, 19


class Sent(NamedTuple):
    highest: int  # symbol that occurs
    table: Table


class Part(NamedTuple):
    """Symbols of a plane, or of some of its rows."""

    plane: int
    begin: int
    end: int


def decode_rans(section: ByteReader, extents: list[Extent], settings: Settings) -> list[np.ndarray]:
    planes = [np.zeros(extent.size, np.uint8) for extent in extents]
    tables: dict[int, Table] = {}  # of planes in the stream
    packed: set[int] = set()
    sent: list[Sent] = []
    for index, extent in enumerate(extents):
        if extent.size == 0 or extent.alphabet == 1:
            continue
        mode = section.number("B")
        if mode == PACKED:
            packed.add(index)
        elif mode == CONSTANT:
            symbol = section.number("B")
            require(symbol < extent.alphabet, "a constant beyond its alphabet")
            planes[index][:] = symbol
        else:
            tables[index] = _table(section, mode, extent.alphabet, sent, settings)
    if settings.version == 1:
        parts = [Part(index, 0, extent.size) for index, extent in enumerate(extents)]
        _read_piece(section, parts, planes, extents, packed, tables, most_lanes_log2=5)
        return planes
    pieces = _pieces(extents)
    for parts, size in zip(pieces, [section.varint() for _ in pieces]):
        piece = ByteReader(section.take(size))
        _read_piece(piece, parts, planes, extents, packed, tables, most_lanes_log2=7)
        piece.end("a piece")
    return planes


def _table(section: ByteReader, mode: int, alphabet: int, sent: list[Sent],
           settings: Settings) -> Table:
    make = plain_table if settings.version == 1 else alias_table
    if mode >= FIRST_CLASS:
        require(settings.version > 1 and settings.parameters[1] == 1, "unknown rans mode")
        assert settings.artefact is not None
        classes = settings.artefact.entropy.get(alphabet, [])
        require(mode - FIRST_CLASS < len(classes), "a class that the artefact lacks")
        frequencies = [int(frequency) for frequency in classes[mode - FIRST_CLASS]]
        return make(frequencies)
    if mode == NEW_TABLE:
        frequencies = read_frequencies(section)
        sent.append(Sent(len(frequencies) - 1, make(frequencies)))
    back = max(mode - 2, 1)
    require(back <= len(sent), "a table that was not sent")
    require(sent[-back].highest < alphabet, "a table beyond the alphabet")
    return sent[-back].table


def _pieces(extents: list[Extent]) -> list[list[Part]]:
    pieces: list[list[Part]] = [[]]
    for index, extent in enumerate(extents):
        if sum(part.end - part.begin for part in pieces[-1]) + extent.size > PIECE:
            pieces.append([])
        if extent.size > PIECE:
            count = -(-extent.size // PIECE)
            step = -(-extent.rows // count) * extent.columns
            pieces += [[Part(index, begin, min(begin + step, extent.size))]
                       for begin in range(0, extent.size, step)]
            pieces.append([])
        else:
            pieces[-1].append(Part(index, 0, extent.size))
    return [piece for piece in pieces if piece]


def _read_piece(piece: ByteReader, parts: list[Part], planes: list[np.ndarray],
                extents: list[Extent], packed: set[int], tables: dict[int, Table],
                most_lanes_log2: int) -> None:
    for plane, begin, end in parts:
        if plane in packed:
            planes[plane][begin:end] = unpack(piece, end - begin, extents[plane].alphabet)
    coded = [(planes[plane][begin:end], tables[plane])
             for plane, begin, end in parts if plane in tables]
    if coded:
        _decode_stream(piece, coded, most_lanes_log2)


def _decode_stream(piece: ByteReader, parts: list[tuple[np.ndarray, Table]],
                   most_lanes_log2: int) -> None:
    stream = Stream(piece, most_lanes_log2)
    for symbols, table in parts:
        for index in range(len(symbols)):
            symbols[index], frequency, offset = table[stream.slot(index)]
            stream.advance(index, frequency, offset)
    stream.end()


class Stream:
    """Interleaved states, and words to the end of a piece."""

    def __init__(self, piece: ByteReader, most_lanes_log2: int):
        lanes_log2 = piece.number("B")
        require(lanes_log2 <= most_lanes_log2, "too many rans lanes")
        self._states = [piece.number("I") for _ in range(1 << lanes_log2)]
        require(piece.left % 2 == 0, "half a word at the end of the rans stream")
        self._words = np.frombuffer(piece.take(piece.left), "<u2").tolist()
        self._at = 0

    def slot(self, index: int) -> int:
        """Of symbol `index` of a plane."""
        return self._states[index % len(self._states)] % TOTAL

    def advance(self, index: int, frequency: int, offset: int) -> None:
        lane = index % len(self._states)
        state = frequency * (self._states[lane] // TOTAL) + offset
        if state < LOWEST:
            require(self._at < len(self._words), "the rans stream ends early")
            state = state * LOWEST + self._words[self._at]
            self._at += 1
        self._states[lane] = state

    def end(self) -> None:
        require(self._at == len(self._words), "rans words left over")
        require(all(state == LOWEST for state in self._states), "rans states do not end at 65536")
