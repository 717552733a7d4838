"""A calibration artefact: statistics and entropy tables of one model. CALIBRATION.md."""

import dataclasses
import math

import numpy as np
import xxhash

from byte_reader import ByteReader, Unsupported, require

PREFIX_BYTES = 34
CHECKSUM_AT = slice(26, 34)
(STATISTICS, ENTROPY, KLT_HEADS, KLT_JOINT, QUERIES, HEAD_SCORES, WHITENING, PREDICTORS,
 CODE_TABLES) = range(1, 10)
REQUIRED = 1
TABLE_SUM = 4096

Klt = tuple[np.ndarray, np.ndarray]  # mean [head * dim], basis [group, component, column]
Whitening = tuple[np.ndarray, np.ndarray]  # mean [column], inverse [group, component, column]
Predictor = tuple[np.ndarray, np.ndarray]  # scale [component], weights [component, input]
Statistics = tuple[np.ndarray, np.ndarray]  # mean and scale, [head * dim] float32


@dataclasses.dataclass
class ContextPlane:
    column: np.ndarray  # [component] table index
    klass: np.ndarray  # [class] added
    energy: np.ndarray  # constant, and weights of K and V of the layer before and of K


@dataclasses.dataclass
class CodeTables:
    frequencies: np.ndarray  # [60, 256], the last of a row the escape's
    mean_size: np.ndarray  # [60]
    classes: np.ndarray | None  # [K or V, previous layer's class, class]
    points: list[tuple[float, dict[tuple[int, bool], ContextPlane]]]  # step, planes


@dataclasses.dataclass
class Artefact:
    fingerprint: bytes
    dtype: int
    layers: list[tuple[int, int, int]]  # kv_heads, k_dim, v_dim
    model: bytes
    tokens: int
    source: str
    statistics: dict[tuple[int, bool], Statistics]  # by layer and is_v
    entropy: dict[int, np.ndarray]  # by alphabet: [class, symbol] frequencies
    klt_heads: dict[tuple[int, bool], Klt]
    klt_joint: dict[tuple[int, bool], Klt]
    head_scores: dict[int, np.ndarray]  # by layer: [kv_head]
    whitening: dict[tuple[int, bool], Whitening] = dataclasses.field(default_factory=dict)
    predictors: dict[tuple[int, bool], Predictor] = dataclasses.field(default_factory=dict)
    predictor_layers: int = 1
    code_tables: CodeTables | None = None


def read_artefact(data: bytes) -> Artefact:
    prefix = ByteReader(data)
    require(prefix.take(4) == b"KVSC", "no calibration artefact")
    if (version := prefix.number("H")) != 1:
        raise Unsupported(f"calibration version {version}")
    header_bytes = prefix.number("I")
    if features := prefix.number("Q"):
        raise Unsupported(f"feature bits {features:#x}")
    require(prefix.number("Q") == len(data) <= 2**30, "file_bytes")
    checksum = prefix.number("Q")
    require(PREFIX_BYTES <= header_bytes <= min(2**20, len(data)), "header_bytes out of range")
    header = bytearray(data[:header_bytes])
    header[CHECKSUM_AT] = bytes(8)
    require(xxhash.xxh3_64_intdigest(bytes(header)) == checksum, "header checksum")
    body = ByteReader(data[PREFIX_BYTES:header_bytes])
    artefact = _read_body(body, xxhash.xxh3_128_digest(data))
    table = _read_table(body)
    body.end("the header")
    contents = ByteReader(data[header_bytes:])
    for kind, flags, version, size, checksum in table:
        section = contents.take(size)
        require(xxhash.xxh3_64_intdigest(section, seed=kind) == checksum,
                f"checksum of section {kind}")
        _read_section(artefact, kind, flags, version, ByteReader(section))
    contents.end("the artefact")
    return artefact


def _read_body(body: ByteReader, fingerprint: bytes) -> Artefact:
    dtype = body.number("B")
    count = body.varint(1, 4096)
    layers: list[tuple[int, int, int]] = []
    last = None
    while len(layers) < count:
        alike = body.varint(1, count - len(layers))
        shape = (body.varint(1, 4096), body.varint(1, 65536), body.varint(0, 65536))
        window = body.varint(0, 2**24)
        rope_style = body.number("B")
        require(rope_style <= 2, "rope_style")
        theta = body.number("f") if rope_style else 0.0
        require(not rope_style or 0 < theta < math.inf, "rope_theta")
        run = (shape, window, rope_style, theta)
        require(run != last, "two runs that touch are alike")
        last = run
        layers += [shape] * alike
    model = body.take(16)
    tokens = body.varint()
    source = body.take(body.varint(0, 4096))
    require(all(0x20 <= byte <= 0x7E for byte in source), "source is not printable")
    return Artefact(fingerprint, dtype, layers, model, tokens, source.decode(), {}, {}, {}, {}, {})


def _read_table(body: ByteReader) -> list[tuple[int, int, int, int, int]]:
    """(kind, flags, version, bytes, checksum) per section."""
    table: list = []
    for _ in range(body.number("B")):
        kind, flags, version = (body.number("B") for _ in range(3))
        require(kind > (table[-1][0] if table else 0), "sections are not in order")
        require(flags <= REQUIRED, "unknown section flags")
        table.append((kind, flags, version, body.varint(), body.number("Q")))
    return table


def _read_section(artefact: Artefact, kind: int, flags: int, version: int,
                  section: ByteReader) -> None:
    if (kind, version) == (STATISTICS, 1):
        _read_statistics(artefact, section)
    elif (kind, version) == (ENTROPY, 1):
        _read_entropy(artefact, section)
    elif (kind, version) == (KLT_HEADS, 1):
        _read_klt(artefact.layers, False, artefact.klt_heads, section)
    elif (kind, version) == (KLT_JOINT, 1):
        _read_klt(artefact.layers, True, artefact.klt_joint, section)
    elif kind == QUERIES and version in (1, 2):
        _read_queries(artefact.layers, version, section)
    elif (kind, version) == (HEAD_SCORES, 1):
        _read_head_scores(artefact, section)
    elif kind == WHITENING and version in (1, 2):
        _read_whitening(artefact, version, section)
    elif kind == PREDICTORS and version in (1, 2):
        _read_predictors(artefact, version, section)
    elif (kind, version) == (CODE_TABLES, 1):
        _read_code_tables(artefact, section)
    elif flags & REQUIRED:
        raise Unsupported(f"section {kind} version {version} is required")
    else:
        return
    section.end(f"section {kind}")


def _read_statistics(artefact: Artefact, section: ByteReader) -> None:
    for layer, (kv_heads, k_dim, v_dim) in enumerate(artefact.layers):
        for is_v, dim in enumerate((k_dim, v_dim)):
            present = section.number("B")
            require(present <= (1 if dim else 0), "statistics of no plane")
            if present:
                columns = kv_heads * dim
                mean = np.frombuffer(section.take(4 * columns), "<f4")
                scale = np.frombuffer(section.take(4 * columns), "<f4")
                require(bool(np.isfinite(mean).all()), "a mean that is not finite")
                require(bool((np.isfinite(scale) & (scale >= 2.0**-126)).all()),
                        "a scale that is not a positive normal number")
                artefact.statistics[layer, bool(is_v)] = mean, scale
    require(bool(artefact.statistics), "no plane has statistics")


def _read_entropy(artefact: Artefact, section: ByteReader) -> None:
    last = 1
    for _ in range(section.varint(1, 255)):
        alphabet = section.varint(last + 1, 256)
        classes = section.varint(1, 64)
        frequencies = np.frombuffer(section.take(2 * classes * alphabet), "<u2")
        frequencies = frequencies.reshape(classes, alphabet)
        require(bool((frequencies > 0).all() and (frequencies.sum(1) == TABLE_SUM).all()),
                "frequencies of a class")
        artefact.entropy[alphabet] = frequencies
        last = alphabet


def _floats(section: ByteReader, *shape: int) -> np.ndarray:
    values = np.frombuffer(section.take(4 * math.prod(shape)), "<f4").reshape(shape)
    require(bool(np.isfinite(values).all()), "a value that is not finite")
    return values


def _read_klt(layers: list, joint: bool, planes: dict, section: ByteReader) -> None:
    for layer, (kv_heads, k_dim, v_dim) in enumerate(layers):
        for is_v, dim in enumerate((k_dim, v_dim)):
            present = section.number("B")
            require(present <= (1 if dim else 0), "a KLT of no plane")
            if present:
                groups, columns = (1, kv_heads * dim) if joint else (kv_heads, dim)
                mean = _floats(section, kv_heads * dim)
                basis = _floats(section, groups, columns, columns)
                variance = _floats(section, groups, columns)
                norms = (basis.astype(np.float64)**2).sum(2)
                require(bool((abs(norms - 1) <= 1e-3).all()), "a row of a basis without norm 1")
                require(bool((variance >= 0).all() and (np.diff(variance) <= 0).all()),
                        "variances that are negative or rise")
                planes[layer, bool(is_v)] = mean, basis
    require(bool(planes), "no plane has a KLT")


def _read_queries(layers: list, version: int, section: ByteReader) -> None:
    """Checked; no decoder needs them."""
    layers_there = 0
    for kv_heads, k_dim, _ in layers:
        if not (heads := section.varint(0, 4096)):
            continue
        require(heads % kv_heads == 0, "query heads that are no multiple of KV heads")
        _floats(section, heads, k_dim)
        if version == 1:
            triangles = _floats(section, heads, k_dim * (k_dim + 1) // 2)
            variances = triangles[:, [i * (i + 3) // 2 for i in range(k_dim)]]
        else:
            variances = _floats(section, heads, k_dim)
            _bytes(section, heads, k_dim * (k_dim - 1) // 2)
        require(bool((variances >= 0).all()), "a variance that is negative")
        layers_there += 1
    require(layers_there > 0, "no layer has queries")


def _read_head_scores(artefact: Artefact, section: ByteReader) -> None:
    for layer, (kv_heads, _, _) in enumerate(artefact.layers):
        present = section.number("B")
        require(present <= 1, "a flag is neither 0 nor 1")
        if present:
            scores = _floats(section, kv_heads)
            require(bool(((scores >= 0) & (scores <= 1)).all()), "a score outside 0..1")
            artefact.head_scores[layer] = scores
    require(bool(artefact.head_scores), "no layer has scores")


def _planes(artefact: Artefact):
    """((layer, is_v), columns) in the order of sections; 0 columns for the V of a single plane."""
    for layer, (kv_heads, k_dim, v_dim) in enumerate(artefact.layers):
        for is_v, dim in enumerate((k_dim, v_dim)):
            yield (layer, bool(is_v)), kv_heads * dim


def _bytes(section: ByteReader, *shape: int) -> np.ndarray:
    values = np.frombuffer(section.take(math.prod(shape)), "i1").reshape(shape)
    require(bool((values != -128).all()), "a value of a matrix is -128")
    return values


def _packed(section: ByteReader, bits: int, *shape: int) -> np.ndarray:
    """Integers of few bits each, from the lowest bit of each byte on."""
    count = math.prod(shape)
    data = np.frombuffer(section.take((count * bits + 7) // 8), np.uint8)
    unpacked = np.unpackbits(data, bitorder="little")
    require(not unpacked[count * bits:].any(), "a matrix does not end with zeros")
    codes = unpacked[:count * bits].reshape(count, bits) @ (1 << np.arange(bits))
    require(bool((codes <= 2**bits - 2).all()), "a value that has no opposite")
    return (codes - (2**(bits - 1) - 1)).astype(np.int8).reshape(shape)


def _read_whitening(artefact: Artefact, version: int, section: ByteReader) -> None:
    for plane, columns in _planes(artefact):
        if not (size := section.varint(0, columns)):
            continue
        require(columns % size == 0, "groups that do not divide the columns")
        bits = section.number("B") if version == 2 else 8
        require(2 <= bits <= 8, "bits of a matrix")
        mean = _floats(section, columns)
        scale = _floats(section, columns)
        require(bool((scale >= 2.0**-126).all()), "a scale that is not a positive normal number")
        rows = (_packed(section, bits, columns, size) if version == 2 else
                _bytes(section, columns, size))
        require(bool(rows.any(1).all()), "a component is zero")
        inverse = scale[:, None] * rows.astype(np.float32)
        artefact.whitening[plane] = mean, inverse.reshape(columns // size, size, size)
    require(bool(artefact.whitening), "no plane has a whitening")


def predictor_sources(artefact: Artefact, layer: int, is_v: bool) -> list[tuple[int, bool]]:
    """Planes whose components are the inputs, in their order."""
    before = range(max(0, layer - artefact.predictor_layers), layer)
    return [(at, kind) for at in before for kind in (False, True)] + [(layer, False)] * is_v


def plane_columns(artefact: Artefact, layer: int, is_v: bool) -> int:
    kv_heads, *dims = artefact.layers[layer]
    return kv_heads * dims[is_v]


def _read_predictors(artefact: Artefact, version: int, section: ByteReader) -> None:
    if version == 2:
        artefact.predictor_layers = section.number("B")
        require(1 <= artefact.predictor_layers <= 8, "layers before")
    for plane, columns in _planes(artefact):
        inputs = sum(plane_columns(artefact, *source)
                     for source in predictor_sources(artefact, *plane))
        bits = section.number("B")  # a flag in version 1
        require(bits in ((0, 1) if version == 1 else (0, *range(2, 9))), "bits of a matrix")
        if bits:
            require(columns > 0 and inputs > 0, "a predictor of nothing")
            scale = _floats(section, columns)
            require(bool((scale >= 0).all()), "a scale that is negative")
            weights = (_bytes(section, columns, inputs) if version == 1 else
                       _packed(section, bits, columns, inputs))
            artefact.predictors[plane] = scale, weights
    require(bool(artefact.predictors), "no plane has a predictor")


def _read_code_tables(artefact: Artefact, section: ByteReader) -> None:
    frequencies = np.frombuffer(section.take(2 * 60 * 256), "<u2").reshape(60, 256)
    require(bool((frequencies.sum(1) == TABLE_SUM).all()), "frequencies of a table")
    require(bool((frequencies[:, 255] > 0).all()), "a table without escape")
    mean_size = np.frombuffer(section.take(2 * 60), "<u2")
    has_classes = section.number("B")
    require(has_classes <= 1, "a flag is neither 0 nor 1")
    classes = None
    if has_classes:
        classes = np.frombuffer(section.take(2 * 2 * 14 * 13), "<u2").reshape(2, 14, 13)
        require(bool((classes > 0).all() and (classes.sum(2) == TABLE_SUM).all()),
                "frequencies of classes")
    points: list = []
    last = 0.0
    for _ in range(section.varint(1, 64)):
        step = section.number("f")
        require(max(last, 2.0**-127) < step < math.inf, "steps that do not ascend")
        last = step
        require(0 <= section.number("f") < math.inf, "bits per value")
        points.append((step, _read_contexts(artefact, section)))
    artefact.code_tables = CodeTables(frequencies, mean_size, classes, points)


def _read_contexts(artefact: Artefact, section: ByteReader) -> dict:
    planes = {}
    for plane, columns in _planes(artefact):
        present = section.number("B")
        require(present <= (1 if columns else 0), "contexts of no plane")
        if present:
            column = np.frombuffer(section.take(columns), "i1").astype(np.int64)
            klass = np.frombuffer(section.take(13), "i1").astype(np.int64)
            energy = np.frombuffer(section.take(8), "<i2").astype(np.int64)
            planes[plane] = ContextPlane(column, klass, energy)
    return planes
