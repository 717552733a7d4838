"""clang-tidy over the tree, remembering what passed.

tidy.py BUILD_FOLDER: runs clang-tidy-14 on every project source of the build's
compile_commands.json, one per core. A source that passed is not run again until it, a project
header that it includes, or .clang-tidy changes.
"""

import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import include_law

ROOT = include_law.ROOT
PASSED = ROOT / "build" / "lint"


def sources(build: Path) -> list[str]:
    commands = json.loads((build / "compile_commands.json").read_text())
    files = {Path(command["file"]).resolve() for command in commands}
    return sorted(str(file.relative_to(ROOT)) for file in files
                  if file.is_relative_to(ROOT) and file.exists()
                  and not file.is_relative_to(ROOT / "build"))


def key(path: str) -> str:
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for part in include_law.closure(ROOT, path):
        digest.update(part.encode() + b"\0" + (ROOT / part).read_bytes())
    return digest.hexdigest()


def tidy(build: Path, path: str) -> tuple[str, str]:
    """(path, what clang-tidy found, empty when clean)."""
    stamp = PASSED / key(path)
    if stamp.exists():
        return path, ""
    run = subprocess.run(["clang-tidy-14", "-p", str(build), "--quiet", path], cwd=ROOT,
                         capture_output=True, text=True)
    if run.returncode == 0:
        stamp.touch()
        return path, ""
    return path, run.stdout + (run.stderr if "error:" in run.stderr else "")


def main(build: Path) -> int:
    PASSED.mkdir(parents=True, exist_ok=True)
    todo, faults, shown = sources(build), 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, (path, found) in enumerate(pool.map(lambda p: tidy(build, p), todo), 1):
            if found:
                faults += 1
                print(f"{path}:\n{found}", flush=True)
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"    [{done}/{len(todo)}]", flush=True)
    print(f"    {len(todo)} files, {faults} with findings")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
