"""The preset `published` beside the published method, recomputed here in numpy from its description.

    python bench/published_fidelity.py --binary build/release/bin/kvserve --data kv.safetensors

Per layer: a Hadamard transform of each head (without signs), K quantized with L levels between the
extremes of each channel over the request, V between those of each token over all heads, zero and
step in float16; symbols at the entropy of one table per layer for K and one for V, tables at 12 bits
a level, ranges at 32 bits. `kvserve encode` gets the same tensors as one frame with token 0 among the
others. Prints bytes and root mean square errors of both and fails when they differ by more than 2 %.
`--data` may also be a .kvs file.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TOLERANCE = 0.02


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """k.<layer> and v.<layer>, [token, head, dim] float32, of a safetensors file in float16."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + at for at in entry["data_offsets"])
        tensors[name] = np.frombuffer(raw[begin:end], "<f2").astype(np.float32).reshape(
            entry["shape"])
    return tensors


def hadamard(size: int) -> np.ndarray:
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.float32(np.sqrt(size))


def quantize(values: np.ndarray, axes: tuple[int, ...], levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Symbols and decoded values; ranges extend over the axes."""
    low = values.min(axes, keepdims=True)
    high = values.max(axes, keepdims=True)
    step = ((high - low) / (levels - 1)).astype(np.float16).astype(np.float32)
    low = low.astype(np.float16).astype(np.float32)
    symbols = np.clip(np.rint((values - low) / np.where(step > 0, step, 1)), 0, levels - 1)
    return symbols.astype(np.int64), symbols * step + low


def entropy_bits(symbols: np.ndarray, levels: int) -> float:
    counts = np.bincount(symbols.reshape(-1), minlength=levels)
    used = counts[counts > 0]
    return float(-(used * np.log2(used / counts.sum())).sum())


def published(tensors: dict[str, np.ndarray], levels: int) -> dict[str, float]:
    bits = 0.0
    squares = {"k": 0.0, "v": 0.0}
    count = {"k": 0, "v": 0}
    for name, values in tensors.items():
        kind = name[0]
        transform = hadamard(values.shape[-1])
        axes = (0,) if kind == "k" else (1, 2)
        symbols, decoded = quantize(values @ transform, axes, levels)
        ranges = values.size // np.prod([values.shape[axis] for axis in axes])
        bits += entropy_bits(symbols, levels) + 12 * levels + 32 * ranges
        squares[kind] += float(np.square(decoded @ transform - values, dtype=np.float64).sum())
        count[kind] += values.size
    return {"bytes": bits / 8, **{f"{kind}_rmse": np.sqrt(squares[kind] / count[kind])
                                  for kind in "kv"}}


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


def ours(binary: Path, data: Path, tensors: dict[str, np.ndarray], levels: int,
         folder: Path) -> dict[str, float]:
    frames, decoded = folder / "x.kvs", folder / "x.safetensors"
    run(binary, "encode", "--profile", f"published:levels={levels},raw_first=false",
        "--frame-tokens", "all", data, "-o", frames)
    run(binary, "decode", frames, "-o", decoded)
    after = read_tensors(decoded)
    row = {"bytes": frames.stat().st_size}
    for kind in "kv":
        errors = [np.square(after[name] - values, dtype=np.float64).mean()
                  for name, values in tensors.items() if name[0] == kind]
        row[f"{kind}_rmse"] = float(np.sqrt(np.mean(errors)))
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--levels", type=int, nargs="+", default=[16, 8, 6, 4])
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = arguments.data
        if data.suffix == ".kvs":
            data = folder / "kv.safetensors"
            run(arguments.binary, "decode", arguments.data, "-o", data)
        tensors = read_tensors(data)
        for levels in arguments.levels:
            expected = published(tensors, levels)
            found = ours(arguments.binary, data, tensors, levels, folder)
            off = {key: found[key] / expected[key] - 1 for key in expected}
            print(f"{levels:3} levels: " + ", ".join(
                f"{key} {found[key]:.6g} against {expected[key]:.6g} ({off[key]:+.2%})"
                for key in expected))
            failed |= any(abs(share) > arguments.tolerance for share in off.values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
