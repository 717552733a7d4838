"""One frame: prefix, header body, sections. FORMAT.md, "A frame"."""

import dataclasses
import math

import xxhash

from byte_reader import ByteReader, Corrupt, Unsupported, require, unzigzag

PREFIX_BYTES = 34
CHECKSUM_AT = slice(26, 34)
MAX_TOKENS = 2**24
MAX_NUMBER = 2**53
DTYPES = {1: "float16", 2: "bfloat16", 3: "float32", 4: "float8_e4m3fn", 5: "float8_e4m3fnuz",
          6: "float8_e5m2", 7: "float8_e5m2fnuz", 8: "uint8"}
ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float8_e4m3fn": 1,
                 "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1, "uint8": 1}
CLASSES, SIDE, SYMBOLS = 1, 2, 3
NO_FINGERPRINT = bytes(16)


@dataclasses.dataclass(frozen=True)
class Shape:
    kv_heads: int
    k_dim: int
    v_dim: int  # 0: the layer has only a K plane
    window_tokens: int
    rope_style: int
    rope_theta: float
    token_offset: int
    tokens: int


@dataclasses.dataclass(frozen=True)
class Stage:
    id: int
    version: int
    parameters: dict[int, float]


@dataclasses.dataclass
class Frame:
    frame_bytes: int
    dtype: str
    model_layers: int
    first_token: int
    token_count: int
    prompt_tokens: int
    model: bytes
    key: bytes
    artefact: bytes
    layers: list[tuple[int, Shape]]  # index in the model, ascending
    stages: list[Stage]
    sections: dict[int, bytes]  # by kind; one that is left out is empty


def read_frame(data: bytes) -> Frame:
    """The frame at the start of data, which may go on with others; everything but its values."""
    prefix = ByteReader(data)
    require(prefix.take(4) == b"KVSF", "no KVServe frame")
    if (version := prefix.number("H")) != 1:
        raise Unsupported(f"frame version {version}")
    header_bytes = prefix.number("I")
    if features := prefix.number("Q"):
        raise Unsupported(f"feature bits {features:#x}")
    frame_bytes = prefix.number("Q")
    checksum = prefix.number("Q")
    require(PREFIX_BYTES <= header_bytes <= 2**20, "header_bytes out of range")
    require(header_bytes <= frame_bytes <= len(data), "frame ends early")
    header = bytearray(data[:header_bytes])
    header[CHECKSUM_AT] = bytes(8)
    require(xxhash.xxh3_64_intdigest(bytes(header)) == checksum, "header checksum")

    body = ByteReader(data[PREFIX_BYTES:header_bytes])
    frame = _read_body(body, frame_bytes)
    table = _read_table(body)
    body.end("the header")
    contents = ByteReader(data[header_bytes:frame_bytes])
    require(sum(size for _, size, _ in table) == contents.left, "section lengths")
    for kind, size, checksum in table:
        frame.sections[kind] = contents.take(size)
        require(xxhash.xxh3_64_intdigest(frame.sections[kind], seed=kind) == checksum,
                f"checksum of section {kind}")
    return frame


def _read_body(body: ByteReader, frame_bytes: int) -> Frame:
    flags = body.number("B")
    require(flags <= 1, "unknown flag bits")
    dtype = body.number("B")
    if dtype not in DTYPES:
        raise Unsupported(f"dtype {dtype}")
    model_layers = body.varint(1, 4096)
    first_token = body.varint(0, MAX_TOKENS)
    token_count = body.varint(0, MAX_TOKENS - first_token)
    prompt_tokens = body.varint(0, MAX_TOKENS)
    require(prompt_tokens == 0 or prompt_tokens >= first_token + token_count, "prompt_tokens")
    model, key = body.take(16), body.take(16)
    artefact = body.take(16) if flags & 1 else NO_FINGERPRINT
    require(not flags & 1 or artefact != NO_FINGERPRINT, "empty artefact fingerprint")
    shapes = [_read_shape(body, token_count) for _ in range(body.varint(1, 1024))]
    layers = _read_runs(body, shapes, model_layers)
    raw_bytes = ELEMENT_BYTES[DTYPES[dtype]] * sum(
        shape.tokens * shape.kv_heads * (shape.k_dim + shape.v_dim) for _, shape in layers)
    require(raw_bytes <= 2**48, "more than 2^48 raw bytes")
    stages = [_read_stage(body) for _ in range(body.varint(0, 32))]
    return Frame(frame_bytes, DTYPES[dtype], model_layers, first_token, token_count, prompt_tokens,
                 model, key, artefact, layers, stages, {CLASSES: b"", SIDE: b"", SYMBOLS: b""})


def _read_shape(body: ByteReader, token_count: int) -> Shape:
    kv_heads = body.varint(1, 4096)
    k_dim = body.varint(1, 65536)
    v_dim = body.varint(0, 65536)
    window_tokens = body.varint(0, MAX_TOKENS)
    rope_style = body.number("B")
    require(rope_style <= 2, "rope_style")
    rope_theta = body.number("f") if rope_style else 0.0
    require(not rope_style or 0 < rope_theta < math.inf, "rope_theta")
    token_offset = body.varint(0, token_count)
    tokens = body.varint(0, token_count - token_offset)
    return Shape(kv_heads, k_dim, v_dim, window_tokens, rope_style, rope_theta, token_offset,
                 tokens)


def _read_runs(body: ByteReader, shapes: list[Shape], model_layers: int) -> list[tuple[int, Shape]]:
    layers = []
    next_layer = 0
    for _ in range(body.varint(0, model_layers)):
        first = next_layer + body.varint(0, model_layers - next_layer)
        count = body.varint(1, model_layers - first)
        shape = shapes[body.varint(0, len(shapes) - 1)]
        next_layer = first + count
        layers += [(layer, shape) for layer in range(first, next_layer)]
    return layers


def _read_stage(body: ByteReader) -> Stage:
    stage_id = body.varint(1, 65535)
    version = body.number("B")
    parameters = {}
    last = -1
    for _ in range(body.number("B")):
        parameter = body.number("B")
        require(parameter > last, "parameters are not in order")
        parameters[parameter] = _read_value(body)
        last = parameter
    return Stage(stage_id, version, parameters)


def _read_value(body: ByteReader) -> float:
    code = body.varint()
    if code % 2 == 0:
        value = unzigzag(code // 2)
    else:
        require(code == 1, "unknown form of a parameter's value")
        value = body.number("d")
        require(math.isfinite(value) and value != int(value), "a whole number written as f64")
    require(abs(value) <= MAX_NUMBER, "parameter out of range")
    return value


def _read_table(body: ByteReader) -> list[tuple[int, int, int]]:
    """(kind, bytes, checksum) per section."""
    table = []
    for _ in range(body.number("B")):
        kind = body.number("B")
        require(kind in (CLASSES, SIDE, SYMBOLS), f"unknown section {kind}")
        require(not table or kind > table[-1][0], "sections are not in order")
        table.append((kind, body.varint(), body.number("Q")))
    return table
