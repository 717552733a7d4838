"""A frame's planes: sections through codec, quantizer and transforms. FORMAT.md, "Planes and
sections"."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from affine import Affine
from byte_reader import ByteReader, Unsupported, require
from calibration import Artefact
from codebooks import Fp4Quantizer, LloydMaxQuantizer
from contexts import decode_contexts
from delta import Delta
from float8 import FORMS, round_to
from frame import CLASSES, ELEMENT_BYTES, NO_FINGERPRINT, SIDE, SYMBOLS, Frame, Stage
from hadamard import Hadamard
from klt import Klt
from lz4_blocks import decode_lz4
from mixed import MixedQuantizer
from quantizers import Fp8Quantizer, LosslessQuantizer, NoneQuantizer
from planes import Extent, Plane, Settings
from predict import Predict
from rans import decode_rans
from steps import StepsQuantizer
from symbol_codecs import decode_bitpack, decode_none, decode_zstd
from uniform import UniformQuantizer
from unrope import UnRope
from whiten import Whiten

MAX_RAW_BYTES = 2**33  # this decoder's own limit
SELECTOR, TRANSFORM, QUANTIZER, CODEC = range(4)


class Parameter(NamedTuple):
    low: float
    high: float
    since: int = 1  # the version of the stage that brought it
    old: float = 0  # its value in frames of older versions
    whole: bool = True


BOOLEAN = Parameter(0, 1)


class Kind(NamedTuple):
    name: str
    place: int
    make: Any  # (Settings) of a transform or quantizer; (section, extents, Settings) of a codec
    parameters: dict[int, Parameter]  # by id
    newest: int = 1  # older versions decode too
    needs_artefact: Any = lambda parameters: False


# What selectors have in common.
CHOICE = {1: Parameter(0, 65536), 2: Parameter(0, 2**24), 3: Parameter(0, 1, whole=False),
          4: Parameter(0, 1, whole=False), 5: BOOLEAN}

STAGES = {
    0x0101: Kind("window", SELECTOR, None,
                 {1: Parameter(0, 65536), 2: Parameter(0, 2**24), 3: Parameter(0, 1, whole=False),
                  4: Parameter(1, 64, whole=False)}),
    0x0102: Kind("attention", SELECTOR, None,
                 {**CHOICE, 6: Parameter(0, 65536), 7: Parameter(1, 255)}),
    0x0103: Kind("expected", SELECTOR, None,
                 {**CHOICE, 6: Parameter(0, 2, whole=False), 7: Parameter(0, 2, whole=False),
                  8: Parameter(1 / 64, 1, whole=False), 9: Parameter(1, 64, whole=False),
                  10: Parameter(1, 65536), 11: Parameter(0, 1, since=2),
                  12: Parameter(0, 1, since=2), 13: Parameter(0, 4, since=2, whole=False)},
                 newest=2, needs_artefact=lambda parameters: True),
    0x0104: Kind("buckets", SELECTOR, None,
                 {**CHOICE, 6: Parameter(1, 16), 7: Parameter(0, 2**31 - 1)}),
    0x0201: Kind("hadamard", TRANSFORM, Hadamard,
                 {1: Parameter(0, 2**31 - 1), 2: BOOLEAN, 3: BOOLEAN}),
    0x0202: Kind("affine", TRANSFORM, Affine,
                 {1: BOOLEAN, 2: BOOLEAN, 3: BOOLEAN, 4: BOOLEAN, 5: BOOLEAN},
                 needs_artefact=lambda parameters: parameters[1] == 1),
    0x0203: Kind("delta", TRANSFORM, Delta,
                 {1: BOOLEAN, 2: Parameter(2, 4096), 3: BOOLEAN, 4: BOOLEAN}),
    0x0204: Kind("unrope", TRANSFORM, UnRope, {}),
    0x0205: Kind("klt", TRANSFORM, Klt, {1: BOOLEAN, 2: BOOLEAN, 3: BOOLEAN, 4: BOOLEAN},
                 needs_artefact=lambda parameters: parameters[3] or parameters[4]),
    0x0206: Kind("whiten", TRANSFORM, Whiten,
                 {1: Parameter(1e-3, 1e3, whole=False), 2: Parameter(1e-3, 1e3, whole=False),
                  3: BOOLEAN, 4: BOOLEAN},
                 needs_artefact=lambda parameters: parameters[3] or parameters[4]),
    0x0207: Kind("predict", TRANSFORM, Predict, {1: BOOLEAN, 2: BOOLEAN},
                 needs_artefact=lambda parameters: parameters[1] or parameters[2]),
    0x0301: Kind("none", QUANTIZER, NoneQuantizer, {}),
    0x0302: Kind("uniform", QUANTIZER, UniformQuantizer,
                 {1: Parameter(2, 256), 2: Parameter(2, 256),
                  3: Parameter(0, 3), 4: Parameter(0, 3),
                  5: Parameter(8, 1024), 6: Parameter(8, 1024), 7: BOOLEAN,
                  8: Parameter(0, 2, since=2), 9: Parameter(0, 2, since=2),
                  10: Parameter(1e-6, 1e6, since=2, old=1, whole=False),
                  11: Parameter(1e-6, 1e6, since=2, old=1, whole=False),
                  12: Parameter(0, 1, since=2, whole=False),
                  13: Parameter(0, 1, since=2, whole=False),
                  14: Parameter(0, 1, since=2), 15: Parameter(0, 1, since=2),
                  16: Parameter(0, 65536, since=3), 17: Parameter(0, 65536, since=3),
                  18: Parameter(0, 1, since=3)}, newest=3),
    0x0303: Kind("lossless", QUANTIZER, LosslessQuantizer, {}),
    0x0304: Kind("fp8", QUANTIZER, Fp8Quantizer,
                 {1: BOOLEAN, 2: BOOLEAN, 3: Parameter(0, 2), 4: Parameter(0, 2),
                  5: Parameter(0, 2), 6: Parameter(0, 2)}),
    0x0305: Kind("mixed", QUANTIZER, MixedQuantizer,
                 {**{number: Parameter(2, 256) for number in (1, 2, 3, 4, 9, 10, 13, 14)},
                  **{number: Parameter(0, 1024) for number in (7, 8, 11, 12)},
                  5: Parameter(0, 1, whole=False), 6: BOOLEAN, 15: Parameter(0, 2),
                  16: Parameter(0, 2), 17: BOOLEAN, 18: BOOLEAN, 19: BOOLEAN, 20: BOOLEAN},
                 needs_artefact=lambda parameters: parameters[5] > 0),
    0x0306: Kind("fp4", QUANTIZER, Fp4Quantizer,
                 {1: Parameter(8, 1024), 2: Parameter(8, 1024), 3: BOOLEAN}),
    0x0307: Kind("lloydmax", QUANTIZER, LloydMaxQuantizer,
                 {1: Parameter(2, 16), 2: Parameter(2, 16), 3: Parameter(8, 1024),
                  4: Parameter(8, 1024), 5: BOOLEAN, 6: BOOLEAN, 7: BOOLEAN}),
    0x0308: Kind("steps", QUANTIZER, StepsQuantizer, {1: BOOLEAN}),
    0x0401: Kind("none", CODEC, decode_none, {}),
    0x0402: Kind("bitpack", CODEC, decode_bitpack, {}),
    0x0403: Kind("rans", CODEC, decode_rans, {1: Parameter(0, 1, since=2)}, newest=2,
                 needs_artefact=lambda parameters: parameters[1] == 1),
    0x0404: Kind("zstd", CODEC, decode_zstd, {1: Parameter(1, 19)}),
    0x0405: Kind("lz4", CODEC, decode_lz4, {1: Parameter(1, 1024)}),
    0x0406: Kind("contexts", CODEC, decode_contexts, {1: Parameter(0, 64), 2: BOOLEAN, 3: BOOLEAN},
                 needs_artefact=lambda parameters: True),
}


def planes_of(frame: Frame) -> list[Plane]:
    """In coding order."""
    planes = []
    for layer, shape in frame.layers:
        first_token = frame.first_token + shape.token_offset
        for is_v, dim in enumerate((shape.k_dim, shape.v_dim)):
            if dim:
                planes.append(Plane(layer, bool(is_v), first_token, shape.tokens, shape.kv_heads,
                                    dim, frame.dtype, shape.rope_style, shape.rope_theta))
    return planes


def decode_planes(frame: Frame, artefacts: Iterable[Artefact] = ()) -> list[
        tuple[Plane, np.ndarray]]:
    """The bits [token, head, dim] of every plane, as u1, u2 or u4 of the frame's dtype."""
    kinds, settings = _check_chain(frame, artefacts)
    *transforms, quantizer = [kind.make(setting)
                              for kind, setting in zip(kinds[:-1], settings[:-1])
                              if kind.place != SELECTOR]
    planes = planes_of(frame)
    raw_bytes = sum(plane.tokens * plane.heads * plane.dim for plane in planes)
    if raw_bytes * ELEMENT_BYTES[frame.dtype] > MAX_RAW_BYTES:
        raise Unsupported("a frame larger than this decoder's limit")
    seen = [plane for plane in planes if plane.tokens]

    classes = ByteReader(frame.sections[CLASSES])
    if hasattr(quantizer, "read_classes"):
        quantizer.read_classes(seen, classes)
    classes.end("the classes")
    runs = [[extent._replace(layer=plane.layer, is_v=plane.is_v)
             for extent in (quantizer.runs(plane) if hasattr(quantizer, "runs")
                            else [quantizer.symbols(plane)])]
            for plane in seen]
    symbols = _read_symbols(frame, kinds[-1].make, settings[-1], sum(runs, []))
    sides = _split_side(frame.sections[SIDE], planes)

    decoded = []
    for plane, side in zip(planes, sides):
        shape = (plane.tokens, plane.heads, plane.dim)
        reader = ByteReader(side)
        values = np.empty(shape, f"<u{ELEMENT_BYTES[plane.dtype]}")
        if plane.tokens:
            extents = runs.pop(0)
            coded = [symbols.pop(0) for _ in extents]
            in_runs = hasattr(quantizer, "runs")
            values = quantizer.values(plane, coded if in_runs else coded[0], reader).reshape(shape)
            if not quantizer.native:
                dropped = quantizer.dropped(plane) if hasattr(quantizer, "dropped") else []
                values = _undo(transforms, plane, values, reader, dropped)
        reader.end("the side bytes of a plane")
        decoded.append((plane, values))
    return decoded


def _check_chain(frame: Frame,
                 artefacts: Iterable[Artefact]) -> tuple[list[Kind], list[Settings]]:
    parameters = [_check_parameters(stage) for stage in frame.stages]
    kinds = [STAGES[stage.id] for stage in frame.stages]
    places = [kind.place for kind in kinds]
    require(places[-2:] == [QUANTIZER, CODEC] and places == sorted(places) and
            set(places[:-2]) <= {SELECTOR, TRANSFORM},
            "a chain is selectors, transforms, one quantizer, one codec")
    require(TRANSFORM not in places or not kinds[-2].make.native,
            "transforms before a native quantizer")
    require(SELECTOR not in places or kinds[-2].make in (MixedQuantizer, StepsQuantizer),
            "selectors before a quantizer that codes all tokens alike")
    require(frame.dtype != "uint8" or kinds[-2].make.native, "opaque bytes are no numbers")
    _check_rotation(kinds, parameters)
    needed = any(kind.needs_artefact(values) for kind, values in zip(kinds, parameters))
    require(needed == (frame.artefact != NO_FINGERPRINT),
            "an artefact is named that no stage needs, or one is needed and none is named")
    artefact = _find_artefact(frame, artefacts) if needed else None
    return kinds, [Settings(values, stage.version, artefact, frame.model_layers)
                   for values, stage in zip(parameters, frame.stages)]


def _check_rotation(kinds: list[Kind], parameters: list[dict[int, float]]) -> None:
    names = [kind.name for kind in kinds]
    for at, (name, values) in enumerate(zip(names, parameters)):
        require(name not in ("klt", "whiten") or not values[3] or "unrope" in names[:at],
                f"a {name} of keys that is not behind an unrope")


def _check_parameters(stage: Stage) -> dict[int, float]:
    """Every parameter of the newest version, by id."""
    if stage.id not in STAGES or not 1 <= stage.version <= STAGES[stage.id].newest:
        raise Unsupported(f"stage {stage.id:#06x} version {stage.version}")
    values = {}
    given = dict(stage.parameters)
    for number, parameter in STAGES[stage.id].parameters.items():
        if parameter.since > stage.version:
            values[number] = parameter.old
            continue
        require(number in given, "missing parameters")
        value = given.pop(number)
        require(parameter.low <= value <= parameter.high, "parameter out of range")
        require(not parameter.whole or value == int(value), "a parameter is not a whole number")
        values[number] = value
    require(not given, "unknown parameters")
    return values


def _find_artefact(frame: Frame, artefacts: Iterable[Artefact]) -> Artefact:
    for artefact in artefacts:
        if artefact.fingerprint != frame.artefact:
            continue
        require(len(artefact.layers) == frame.model_layers and
                (NO_FINGERPRINT in (artefact.model, frame.model) or
                 artefact.model == frame.model), "an artefact of another model")
        for layer, shape in frame.layers:
            require(artefact.layers[layer] == (shape.kv_heads, shape.k_dim, shape.v_dim),
                    "an artefact of other shapes")
        return artefact
    raise Unsupported(f"needs the calibration artefact {frame.artefact.hex()}")


def _read_symbols(frame: Frame, decode: Any, settings: Settings,
                  shapes: list[Extent]) -> list[np.ndarray]:
    section = ByteReader(frame.sections[SYMBOLS])
    symbols = decode(section, shapes, settings)
    section.end("the symbols")
    for plane, extent in zip(symbols, shapes):
        require(not plane.size or plane.max() < extent.alphabet, "a symbol beyond its alphabet")
    return [plane.reshape(extent.rows, extent.columns)
            for plane, extent in zip(symbols, shapes)]


def _split_side(section: bytes, planes: list[Plane]) -> list[bytes]:
    if not section:
        return [b""] * len(planes)
    reader = ByteReader(section)
    lengths = [reader.varint() for _ in planes]
    sides = [reader.take(length) for length in lengths]
    reader.end("the side section")
    return sides


def _undo(transforms: list, plane: Plane, values: np.ndarray, side: ByteReader,
          dropped: Any) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for transform in reversed(transforms):
            values = transform.inverse(plane, values, side)
        if len(dropped):
            values = np.where(np.asarray(dropped)[:, np.newaxis, np.newaxis], np.float32(0), values)
        require(not np.isnan(values).any(), "a value that is not a number")
        return _round(values, plane.dtype)


def _round(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 to the bits of dtype: to nearest, ties to even, saturating."""
    if dtype in FORMS:
        return round_to(values, dtype)
    if dtype == "float16":
        largest = np.finfo(np.float16).max
        return np.clip(values, -largest, largest).astype("<f2").view("<u2")
    largest = np.finfo(np.float32).max
    bits = np.clip(values, -largest, largest).astype("<f4").view("<u4")
    if dtype == "float32":
        return bits
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    infinite = rounded & 0x7FFF == 0x7F80
    return (rounded - infinite).astype("<u2")
