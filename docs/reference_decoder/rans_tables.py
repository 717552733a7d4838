"""Frequency tables of the codec rans, and which of the 4096 slots each symbol has.
FORMAT_STAGES.md."""

from byte_reader import ByteReader, require

TOTAL = 4096
MOST_ALIASED = 32  # symbols that occur

Table = list[tuple[int, int, int]]  # per slot: symbol, its frequency, offset


def read_frequencies(section: ByteReader) -> list[int]:
    """Of the symbols 0 to the highest that occurs."""
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
    return frequencies


def plain_table(frequencies: list[int]) -> Table:
    """Slots of a symbol lie together, symbols ascend."""
    return [(symbol, frequency, offset) for symbol, frequency in enumerate(frequencies)
            for offset in range(frequency)]


def alias_table(frequencies: list[int]) -> Table:
    occurring = [symbol for symbol, frequency in enumerate(frequencies) if frequency]
    if len(occurring) > MOST_ALIASED:
        return plain_table(frequencies)
    buckets = 16 if len(occurring) <= 16 else 32
    width = TOTAL // buckets
    rest = [frequencies[symbol] for symbol in occurring] + [0] * (buckets - len(occurring))
    alias = _aliases(rest, width)
    table = []
    used = [0] * len(frequencies)
    for bucket in range(buckets):
        for slot in range(width):
            owner = occurring[bucket if slot < rest[bucket] else alias[bucket]]
            table.append((owner, frequencies[owner], used[owner]))
            used[owner] += 1
    return table


def _aliases(rest: list[int], width: int) -> list[int]:
    """Fills every bucket from one that has too much; lowers `rest` of those."""
    alias = [0] * len(rest)
    low = [bucket for bucket, frequency in enumerate(rest) if frequency < width]
    high = [bucket for bucket, frequency in enumerate(rest) if frequency >= width]
    while low:
        poor, rich = low.pop(), high[-1]
        alias[poor] = rich
        rest[rich] -= width - rest[poor]
        if rest[rich] < width:
            low.append(high.pop())
    return alias


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
