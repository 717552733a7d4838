"""Codec contexts: every symbol has a table of its own, found by column, token class and energies.
FORMAT_STAGES.md."""

import math
from typing import NamedTuple

import numpy as np

from byte_reader import ByteReader, require
from calibration import CodeTables, ContextPlane
from planes import Extent, Settings
from rans import Stream
from symbol_codecs import unpack

LAST_TABLE, NOMINAL_TABLE, CENTRE, ESCAPE = 59, 24, 127, 255
NOMINAL_CLASS, CLASSES, DROPPED_SHIFT = 6, 13, -1000
PACKED, NO_SHIFT, MOST_SHIFT = 255, 64, 60
PIECE = 2**20


class Row(NamedTuple):
    plane: int
    index: int
    begin: int  # of its symbols
    end: int
    token: int


def decode_contexts(section: ByteReader, extents: list[Extent],
                    settings: Settings) -> list[np.ndarray]:
    frame = _Frame(extents, settings)
    if frame.active:
        frame.read(section)
    return frame.symbols


class _Frame:
    def __init__(self, extents: list[Extent], settings: Settings):
        self._extents = extents
        assert settings.artefact is not None
        require(settings.artefact.code_tables is not None, "an artefact without code tables")
        self._tables: CodeTables = settings.artefact.code_tables
        self._by_energy = settings.parameters[2] == 1
        self.symbols = [np.zeros(extent.size, np.uint8) for extent in extents]
        self.active = [index for index, extent in enumerate(extents)
                       if extent.size and extent.alphabet > 1]
        self._energies: dict[tuple[int, int], int] = {}  # by plane and token

    def read(self, section: ByteReader) -> None:
        point = section.number("B")
        require(point < len(self._tables.points), "an operating point that the artefact lacks")
        self._find_contexts(self._tables.points[point][1])
        self._modes = {plane: section.number("B") for plane in self.active}
        for mode in self._modes.values():
            require(mode == PACKED or abs(mode - NO_SHIFT) <= MOST_SHIFT, "unknown contexts mode")
        tokens = max(self._extents[plane].rows for plane in self.active)
        symbols = sum(self._extents[plane].size for plane in self.active)
        step = -(-tokens // -(-symbols // PIECE))
        step = -(-step // 16) * 16
        begins = range(0, tokens, step)
        for begin, size in zip(begins, [section.varint() for _ in begins]):
            piece = ByteReader(section.take(size))
            self._read_piece(piece, range(begin, min(begin + step, tokens)), tokens)
            piece.end("a piece")

    def _find_contexts(self, point: dict[tuple[int, bool], ContextPlane]) -> None:
        self._contexts: dict[int, ContextPlane] = {}
        self._places: dict[tuple[int, bool], int] = {}
        seen = set()
        for index in self.active:
            extent = self._extents[index]
            place = (extent.layer, extent.is_v)
            known = point.get(place)
            fits = known is not None and len(known.column) == extent.columns
            if fits and extent.alphabet == 255 and place not in seen:
                self._contexts[index] = known
                self._places[place] = index
            seen.add(place)

    def _read_piece(self, piece: ByteReader, tokens: range, all_tokens: int) -> None:
        rows = [self._rows(plane, tokens, all_tokens) for plane in self.active]
        rows = [of_plane for of_plane in rows if of_plane]
        for of_plane in rows:
            plane = of_plane[0].plane
            if self._modes[plane] == PACKED:
                begin, end = of_plane[0].begin, of_plane[-1].end
                self.symbols[plane][begin:end] = unpack(piece, end - begin,
                                                        self._extents[plane].alphabet)
        stream = None
        if any(self._modes[of_plane[0].plane] != PACKED for of_plane in rows):
            escaped = piece.take(piece.varint())
            stream = _Symbols(Stream(piece, most_lanes_log2=7), self._tables, list(escaped))
        for of_plane in rows:
            if self._modes[of_plane[0].plane] != PACKED:
                self._read_plane(of_plane, stream)
            for row in of_plane:
                self._keep_energy(row)
        if stream:
            stream.end()

    def _rows(self, plane: int, tokens: range, all_tokens: int) -> list[Row]:
        extent = self._extents[plane]
        first = all_tokens - extent.rows
        return [Row(plane, token - first, (token - first) * extent.columns,
                    (token - first + 1) * extent.columns, token)
                for token in tokens if token >= first]

    def _read_plane(self, rows: list[Row], stream: "_Symbols") -> None:
        plane = rows[0].plane
        extent = self._extents[plane]
        stream.restart()
        for row in rows:
            shift = self._modes[plane] - NO_SHIFT
            if plane in self._contexts:
                shift = min(max(shift + self._row_shift(row), -128), 127)
                columns = self._contexts[plane].column
            else:
                columns = [NOMINAL_TABLE] * extent.columns
            for at, column in zip(range(row.begin, row.end), columns):
                code = stream.next(_table(column, shift))
                symbol = (code - CENTRE + extent.alphabet // 2) % 256
                require(symbol < extent.alphabet, "a symbol beyond its alphabet")
                self.symbols[plane][at] = symbol

    def _klass(self, row: Row) -> int:
        classes = self._extents[row.plane].token_classes
        klass = classes[row.index] if len(classes) else NOMINAL_CLASS
        return int(self._contexts[row.plane].klass[klass]) if klass < CLASSES else DROPPED_SHIFT

    def _row_shift(self, row: Row) -> int:
        extent = self._extents[row.plane]
        if not self._by_energy:
            return self._klass(row)
        before = [(extent.layer - 1, False), (extent.layer - 1, True)]
        if extent.is_v:
            before.append((extent.layer, False))
        weights = [int(weight) for weight in self._contexts[row.plane].energy]
        total = 256 * weights[0]
        for weight, place in zip(weights[1:], before):
            total += weight * self._energies.get((self._places.get(place, -1), row.token), 0)
        return self._klass(row) + min(max((total + 8192) // 16384, -60), 60)

    def _keep_energy(self, row: Row) -> None:
        if row.plane not in self._contexts:
            return
        symbols = self.symbols[row.plane][row.begin:row.end].astype(int)
        klass = self._klass(row)
        if klass == DROPPED_SHIFT:
            return
        expected = sum(int(self._tables.mean_size[_table(column, klass)])
                       for column in self._contexts[row.plane].column)
        self._energies[row.plane, row.token] = (
            _lb(256 * (2 * int(np.abs(symbols - CENTRE).sum()) + 1)) - _lb(2 * expected + 256))


class _Symbols:
    """Codes of one stream, escapes replaced."""

    def __init__(self, stream: Stream, tables: CodeTables, escaped: list[int]):
        self._stream = stream
        self._starts = [np.concatenate([[0], np.cumsum(table)]).astype(int)
                        for table in tables.frequencies]
        self._escaped = escaped
        self._at = 0

    def restart(self) -> None:
        self._at = 0

    def next(self, table: int) -> int:
        starts = self._starts[table]
        slot = self._stream.slot(self._at)
        code = int(np.searchsorted(starts, slot, side="right")) - 1
        self._stream.advance(self._at, int(starts[code + 1] - starts[code]),
                             slot - int(starts[code]))
        self._at += 1
        if code == ESCAPE:
            require(bool(self._escaped), "escaped codes end early")
            code = self._escaped.pop(0)
        return code

    def end(self) -> None:
        require(not self._escaped, "escaped codes left over")
        self._stream.end()


def _table(column: int, shift: int) -> int:
    return min(max(int(column) + shift, 0), LAST_TABLE)


def _lb(value: int) -> int:
    """256 log2, of the nine highest bits."""
    whole = value.bit_length() - 1
    high = value >> (whole - 8) if whole >= 8 else value << (8 - whole)
    return 256 * whole + math.floor(256 * math.log2(high / 256) + 0.5)
