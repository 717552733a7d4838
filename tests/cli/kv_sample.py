"""Tiny KV files in safetensors form, written and read without any package."""

import json
import random
import struct
from pathlib import Path

ELEMENT_BYTES = {"F16": 2, "BF16": 2, "F32": 4, "I8": 1}


def pack(dtype: str, values) -> bytes:
    values = list(values)
    if dtype == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    if dtype == "I8":
        return struct.pack(f"<{len(values)}b", *(int(v) for v in values))
    bits = (struct.unpack("<I", struct.pack("<f", v))[0] for v in values)
    return struct.pack(f"<{len(values)}H", *((b + 0x7FFF + ((b >> 16) & 1)) >> 16 for b in bits))


def unpack(dtype: str, data: bytes) -> list:
    count = len(data) // ELEMENT_BYTES[dtype]
    if dtype == "F32":
        return list(struct.unpack(f"<{count}f", data))
    if dtype == "F16":
        return list(struct.unpack(f"<{count}e", data))
    return [struct.unpack("<f", struct.pack("<I", bits << 16))[0]
            for bits in struct.unpack(f"<{count}H", data)]


def write_header(path: Path, header: dict, data: bytes, length=None) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def write(path: Path, tensors: dict, dtype="BF16", metadata=None) -> None:
    """`tensors`: name -> (shape, values)."""
    header = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, (shape, values) in tensors.items():
        packed = pack(dtype, values)
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    write_header(path, header, data)


def write_random(path: Path, layers=2, tokens=20, heads=2, dim=64, dtype="BF16", metadata=None,
                 seed=1) -> None:
    source = random.Random(seed)
    count = tokens * heads * dim
    write(path, {f"{plane}.{layer}": ((tokens, heads, dim),
                                      [source.gauss(0, 1) for _ in range(count)])
                 for layer in range(layers) for plane in "kv"}, dtype, metadata)


def read(path: Path) -> tuple:
    """(tensors: name -> (dtype, shape, values), metadata)"""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data = raw[8 + length:]
    return {name: (entry["dtype"], entry["shape"],
                   unpack(entry["dtype"], data[slice(*entry["data_offsets"])]))
            for name, entry in header.items()}, metadata
