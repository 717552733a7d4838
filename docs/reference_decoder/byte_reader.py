"""Bytes in order, and the two ways in which a frame is refused."""

import struct


class Corrupt(Exception):
    """The bytes are no frame, or a damaged one."""


class Unsupported(Exception):
    """A frame of another version, or with a stage or feature that this decoder does not know."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Corrupt(message)


class ByteReader:
    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        require(count <= self.left, "bytes end early")
        self._at += count
        return self._data[self._at - count:self._at]

    def number(self, form: str):
        """One number of the given `struct` format: B, b, H, h, I, Q, e, f, d."""
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def varint(self, low: int = 0, high: int = 2**64 - 1) -> int:
        value = 0
        for index in range(10):
            byte = self.number("B")
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                require(byte != 0 or index == 0, "varint is not in the shortest form")
                require(low <= value <= high, f"{value} is not in {low}..{high}")
                return value
        raise Corrupt("varint has more than 10 bytes")

    def signed(self) -> int:
        """A varint in zigzag form."""
        return unzigzag(self.varint())

    def end(self, what: str) -> None:
        require(self.left == 0, f"{self.left} bytes too many in {what}")


def unzigzag(code: int) -> int:
    return -(code + 1) // 2 if code & 1 else code // 2
