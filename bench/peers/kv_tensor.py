"""KV files for torch: tensors k.<layer>, v.<layer> as LMCache's [plane, layer, token, column]."""

import json
import struct
from pathlib import Path

import torch

DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read(path: Path) -> tuple[torch.Tensor, int]:
    """The tensor and the size of a head. All layers have one shape, K and V alike."""
    raw = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)

    def plane(name: str) -> torch.Tensor:
        entry = header[name]
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(raw, dtype=DTYPES[entry["dtype"]], offset=8 + length + begin,
                                count=(end - begin) // DTYPES[entry["dtype"]].itemsize)
        return flat.reshape(entry["shape"][0], -1)

    layers = len(header) // 2
    kv = torch.stack([torch.stack([plane(f"{kind}.{layer}") for layer in range(layers)])
                      for kind in "kv"])
    return kv.contiguous(), header["k.0"]["shape"][2]


def write(path: Path, kv: torch.Tensor, head_dim: int) -> None:
    header, data = {}, b""
    for layer in range(kv.shape[1]):
        for index, kind in enumerate("kv"):
            plane = kv[index, layer].contiguous()
            piece = plane.view(torch.uint8).numpy().tobytes()
            header[f"{kind}.{layer}"] = {
                "dtype": NAMES[kv.dtype],
                "shape": [plane.shape[0], plane.shape[1] // head_dim, head_dim],
                "data_offsets": [len(data), len(data) + len(piece)]}
            data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def relative_error(original: torch.Tensor, decoded: torch.Tensor) -> list[float]:
    """Of K and of V: root of the mean square error over that of the mean square."""
    original, decoded = original.double(), decoded.double()
    return [float(((original[i] - decoded[i]).square().sum() / original[i].square().sum()).sqrt())
            for i in (0, 1)]
