"""Decodes KVServe frames, written from docs/FORMAT.md and docs/FORMAT_STAGES.md alone.

    python kvs_decode.py x.kvs -o out.safetensors    tensors k.<layer>, v.<layer>
    python kvs_decode.py x.kvs --check               decodes and prints the headers
    python kvs_decode.py x.kvs --calibration m.calib of frames that name this artefact

Slow and plain; needs numpy, xxhash, zstandard and lz4.
"""

import argparse
import collections
import dataclasses
import json
import struct
import sys
from pathlib import Path

import numpy as np

from byte_reader import Corrupt, Unsupported, require
from calibration import read_artefact
from chain import STAGES, decode_planes
from frame import Frame, read_frame
from planes import Plane

# The FNUZ types, which safetensors files may lack, go as bytes.
SAFETENSORS_DTYPES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32",
                      "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
                      "float8_e4m3fnuz": "U8", "float8_e5m2fnuz": "U8", "uint8": "U8"}


def read_frames(data: bytes) -> list[Frame]:
    """All frames of a file."""
    frames = []
    at = 0
    while at < len(data) or not frames:
        frames.append(read_frame(data[at:]))
        at += frames[-1].frame_bytes
    return frames


def describe(frame: Frame) -> str:
    stages = [STAGES[stage.id].name + "".join(f" {parameter}={value}" for parameter, value
                                              in stage.parameters.items())
              if stage.id in STAGES else f"{stage.id:#06x}" for stage in frame.stages]
    lines = [f"frame of {frame.frame_bytes} bytes, {frame.dtype}, tokens {frame.first_token} to "
             f"{frame.first_token + frame.token_count} of {frame.prompt_tokens or 'unknown'}",
             f"  model {frame.model.hex()}, key {frame.key.hex()}",
             f"  stages {' | '.join(stages)}",
             f"  section bytes {[len(section) for section in frame.sections.values()]}"]
    runs: list = []
    for layer, shape in frame.layers:
        if runs and runs[-1][1] == layer - 1 and runs[-1][2] == shape:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer, shape])
    lines += [f"  layers {first}..{last} of {frame.model_layers}: " + ", ".join(
        f"{name} {value:g}" for name, value in dataclasses.asdict(shape).items())
        for first, last, shape in runs]
    return "\n".join(lines)


def join(frames: list[list[tuple[Plane, np.ndarray]]]) -> dict[str, tuple[Plane, np.ndarray]]:
    """The planes of successive chunks as one tensor per layer and plane, by name; with the first
    chunk's plane."""
    parts = collections.defaultdict(list)
    for frame in frames:
        for plane, bits in frame:
            parts["kv"[plane.is_v] + f".{plane.layer}"].append((plane, bits))
    tensors = {}
    for name, pieces in parts.items():
        held = [piece for piece in pieces if piece[0].tokens] or pieces[-1:]
        for (before, _), (after, _) in zip(held, held[1:]):
            require(before.first_token + before.tokens == after.first_token and
                    (before.heads, before.dim, before.dtype) ==
                    (after.heads, after.dim, after.dtype), f"{name}: frames do not fit together")
        tensors[name] = held[0][0], np.concatenate([bits for _, bits in held])
    return tensors


def write_safetensors(path: Path, tensors: dict[str, tuple[Plane, np.ndarray]]) -> None:
    header: dict = {}
    at = 0
    for name, (plane, bits) in tensors.items():
        header[name] = {"dtype": SAFETENSORS_DTYPES[plane.dtype], "shape": list(bits.shape),
                        "data_offsets": [at, at + bits.nbytes]}
        at += bits.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, bits in tensors.values():
            file.write(bits.tobytes())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frames", type=Path, help="file of frames, .kvs")
    parser.add_argument("-o", "--output", type=Path, help="safetensors file to write")
    parser.add_argument("--check", action="store_true", help="print the header of every frame")
    parser.add_argument("--calibration", type=Path, action="append", default=[],
                        help="calibration artefact, .calib")
    arguments = parser.parse_args()
    try:
        artefacts = [read_artefact(path.read_bytes()) for path in arguments.calibration]
        frames = read_frames(arguments.frames.read_bytes())
        if arguments.check:
            print("\n".join(describe(frame) for frame in frames))
        tensors = join([decode_planes(frame, artefacts) for frame in frames])
    except (Corrupt, Unsupported) as error:
        print(f"{arguments.frames}: {type(error).__name__.lower()}: {error}", file=sys.stderr)
        return 1
    if arguments.output:
        write_safetensors(arguments.output, tensors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
