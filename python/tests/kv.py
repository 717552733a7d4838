"""KV for the tests: arrays of every dtype, some bits of which are no numbers."""

import numpy

CARRIER = {"float16": numpy.uint16, "bfloat16": numpy.uint16, "float32": numpy.uint32}


def random_bits(shape, dtype: str, seed: int):
    """Any bits at all, in the unsigned integers that carry `dtype`."""
    carrier = CARRIER.get(dtype, numpy.uint8)
    generator = numpy.random.default_rng(seed)
    return generator.integers(0, 1 << (8 * numpy.dtype(carrier).itemsize), shape, dtype=carrier)


def random_kv(dtype: str, tokens=33, heads=2, dim=16, layers=3):
    return [(random_bits((tokens, heads, dim), dtype, 2 * layer),
             random_bits((tokens, heads, dim), dtype, 2 * layer + 1)) for layer in range(layers)]


def gaussian_kv(tokens=33, heads=2, dim=16, layers=3, seed=0):
    """float32."""
    generator = numpy.random.default_rng(seed)
    return [tuple(generator.standard_normal((tokens, heads, dim), dtype=numpy.float32)
                  for _ in "kv") for _ in range(layers)]


def to_bfloat16(values):
    """float32 to the bits of bfloat16, rounded to nearest."""
    bits = values.view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def same_bits(a, b) -> bool:
    return a.shape == b.shape and numpy.ascontiguousarray(a).tobytes() == \
        numpy.ascontiguousarray(b).tobytes()
