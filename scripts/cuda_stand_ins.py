"""Lets PyPI's torch import where there is no CUDA: cuda_stand_ins.py SITE_PACKAGES

The wheel links to CUDA's libraries (3 GB more). For each that is missing this makes a library beside
torch's own with the functions that torch asks for, every one of which reports failure: torch then
finds no GPU. For a virtual environment that is used on the CPU alone.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

SYSTEM = re.compile(r"^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|cuda)\.so|ld-linux)")
# Functions without a symbol version belong to the library whose prefix they have.
PREFIXES = {"cublasLt": "libcublasLt", "cublas": "libcublas", "cudnn": "libcudnn",
            "cufft": "libcufft", "cuFile": "libcufile", "curand": "libcurand",
            "cusolver": "libcusolver", "cusparseLt": "libcusparseLt", "cusparse": "libcusparse",
            "nccl": "libnccl", "nvrtc": "libnvrtc", "nvshmem": "libnvshmem", "cupti": "libcupti",
            "cuda": "libcudart", "__cuda": "libcudart"}
INSUFFICIENT_DRIVER = 35  # cudaError_t


def lines(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def needed(library: Path) -> list[str]:
    return re.findall(r"NEEDED.*\[(.+)\]", "\n".join(lines("readelf", "-dW", str(library))))


def version_owners(library: Path) -> dict[str, str]:
    """Symbol version -> the library that defines it."""
    owners, file = {}, None
    for line in lines("readelf", "-VW", str(library)):
        if found := re.search(r"File: (\S+)", line):
            file = found[1]
        if file and (found := re.search(r"Name: (\S+)\s+Flags", line)):
            owners.setdefault(found[1], file)
    return owners


def wanted_symbols(libraries: list[Path], missing: set[str]) -> dict[str, dict[str, set[str]]]:
    """Missing library -> symbol version ("" for none) -> names."""
    undefined, defined = {}, set()
    for library in libraries:
        owners = version_owners(library)
        for line in lines("nm", "-D", str(library)):
            fields = line.split()
            if len(fields) == 2 and fields[0] in "Uwv":
                undefined.setdefault(fields[1], owners)
            elif len(fields) == 3:
                defined.add(fields[2].split("@")[0])
    wanted = {library: defaultdict(set) for library in missing}
    for symbol, owners in undefined.items():
        name, _, version = symbol.replace("@@", "@").partition("@")
        if name in defined:
            continue
        if version:
            if owners.get(version) in missing:
                wanted[owners[version]][version].add(name)
            continue
        stem = next((PREFIXES[p] for p in PREFIXES if name.startswith(p)), None)
        for library in missing:
            if stem and re.match(re.escape(stem) + r"[._]", library):
                wanted[library][""].add(name)
                break
    return wanted


def build(target: Path, versions: dict[str, set[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stand_in.c"), Path(folder, "versions.map")
        names = sorted(set().union(*versions.values()))
        source.write_text("".join(f"int {name}(void){{return {INSUFFICIENT_DRIVER};}}\n"
                                  for name in names))
        command = ["cc", "-shared", "-O1", "-fPIC", "-fno-builtin", "-w", "-nostdlib",
                   f"-Wl,-soname,{target.name}", "-o", str(target), str(source)]
        if any(versions):
            script.write_text("".join(f"{version} {{ global: {'; '.join(sorted(names))}; }};\n"
                                      for version, names in versions.items() if version))
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main(site_packages: str) -> None:
    folder = Path(site_packages, "torch", "lib")
    libraries = [path for path in folder.glob("lib*.so*") if path.is_file()]
    present = {path.name for path in libraries}
    missing = {name for library in libraries for name in needed(library)
               if name not in present and not SYSTEM.match(name)}
    for name, versions in sorted(wanted_symbols(libraries, missing).items()):
        build(folder / name, versions)
    print(f"    stand-ins for {len(missing)} CUDA libraries")


if __name__ == "__main__":
    main(sys.argv[1])
