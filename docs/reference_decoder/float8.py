"""The four one-byte float types: bytes to binary32 and back. FORMAT.md, "Element types"."""

import functools

import numpy as np

# mantissa bits, bias, and whether 0x80 is the only special value
FORMS = {"float8_e4m3fn": (3, 7, False), "float8_e4m3fnuz": (3, 8, True),
         "float8_e5m2": (2, 15, False), "float8_e5m2fnuz": (2, 16, True)}


@functools.cache
def values_of(dtype: str) -> np.ndarray:
    """Of every byte."""
    mantissa_bits, bias, unsigned_zero = FORMS[dtype]
    values = np.empty(256, np.float32)
    for byte in range(256):
        sign = -1.0 if byte & 0x80 else 1.0
        exponent, mantissa = (byte & 0x7F) >> mantissa_bits, byte % 2**mantissa_bits
        fraction = mantissa / 2**mantissa_bits
        magnitude = (1 + fraction) * 2.0**(exponent - bias) if exponent else (
            fraction * 2.0**(1 - bias))
        values[byte] = sign * magnitude
    if unsigned_zero:
        values[0x80] = np.nan
    elif dtype == "float8_e4m3fn":
        values[[0x7F, 0xFF]] = np.nan
    else:
        values[[0x7C, 0xFC]] = np.inf, -np.inf
        values[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return values


def round_to(values: np.ndarray, dtype: str) -> np.ndarray:
    """Bytes of finite or infinite float32: to nearest, ties to even, saturating."""
    positive = values_of(dtype)[:128].astype(np.float64)
    positive = positive[np.isfinite(positive)]
    magnitudes = np.abs(values.astype(np.float64))
    middles = (positive[:-1] + positive[1:]) / 2
    below = np.searchsorted(middles, magnitudes, side="left")
    above = np.searchsorted(middles, magnitudes, side="right")
    codes = np.where(below % 2 == 0, below, above)  # they differ at a tie alone
    negative = np.signbit(values)
    if FORMS[dtype][2]:
        negative &= codes > 0
    return (codes | negative.astype(np.int64) << 7).astype("u1")
