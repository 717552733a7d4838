"""Bad combinations of `kvserve serve` end with status 2 and one line, before a model is looked for."""

import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = ["--model", "/nonexistent/model.gguf"]  # a node that got as far as this would end with 3
PREFILL = ["prefill", *MODEL]
DECODE = ["decode", *MODEL]

CASES = {
    "no node": ([], "subcommand"),
    "no model": (["prefill", "--listen", "127.0.0.1:0"], "--model"),
    "no address": (PREFILL, "--listen"),
    "no HTTP address": (DECODE, "--http"),
    "port too large": ([*PREFILL, "--listen", "127.0.0.1:65536"], "--listen"),
    "no port": ([*DECODE, "--http", "127.0.0.1"], "--http"),
    "open prefill without token": ([*PREFILL, "--listen", "0.0.0.0:7000"], "--token-file"),
    "open prefill HTTP without token": (
        [*PREFILL, "--listen", "127.0.0.1:0", "--http", "[::]:0"], "--token-file"),
    "open decode without token": ([*DECODE, "--http", "0.0.0.0:8080"], "--token-file"),
    "missing token file": (
        [*PREFILL, "--listen", "127.0.0.1:0", "--token-file", "/nonexistent/token"], "token"),
    "token that nothing uses": (
        [*DECODE, "--http", "127.0.0.1:0", "--token-file", "TOKEN"], "--token-file"),
    "profile without peer": (
        [*DECODE, "--http", "127.0.0.1:0", "--profile", "none"], "--prefill"),
    "unknown profile": ([*DECODE, "--http", "127.0.0.1:0", "--prefill", "127.0.0.1:1",
                         "--profile", "nonsense"], "nonsense"),
    "a profile without its artefact": (
        [*DECODE, "--http", "127.0.0.1:0", "--prefill", "127.0.0.1:1",
         "--profile", "affine:source=calibrated|uniform|rans"], "calibration artefact"),
    "peer without port": (
        [*DECODE, "--http", "127.0.0.1:0", "--prefill", "127.0.0.1:0"], "--prefill"),
    "unknown cache type": (
        [*PREFILL, "--listen", "127.0.0.1:0", "--cache-dtype", "float12"], "float12"),
    "no threads": ([*PREFILL, "--listen", "127.0.0.1:0", "--threads", "0"], "--threads"),
    "a rate that is no number": (
        [*PREFILL, "--listen", "127.0.0.1:0", "--pace-mbps", "nan"], "--pace-mbps"),
    "a deadline that is no number": (
        [*DECODE, "--http", "127.0.0.1:0", "--deadline-s", "nan"], "--deadline-s"),
    "a stall time that is no number": (
        [*DECODE, "--http", "127.0.0.1:0", "--stall-s", "-nan"], "--stall-s"),
    "unknown option": ([*PREFILL, "--listen", "127.0.0.1:0", "--fast"], "--fast"),
}


def check(binary: str, token: Path, arguments: list[str], word: str) -> str | None:
    argv = [str(token) if word_ == "TOKEN" else word_ for word_ in arguments]
    run = subprocess.run([binary, "serve", *argv], capture_output=True, text=True, timeout=60)
    if run.returncode != 2:
        return f"status {run.returncode} instead of 2: {run.stderr.strip()}"
    if run.stdout or len(run.stderr.splitlines()) != 1 or word not in run.stderr:
        return f"not one line with {word!r}: {run.stdout!r} {run.stderr!r}"
    if "s3cret" in run.stderr:
        return "the token is shown"
    return None


def main() -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.touch(mode=0o600)
        token.write_text("s3cret\n")
        for name, (arguments, word) in CASES.items():
            if fault := check(sys.argv[1], token, arguments, word):
                print(f"{name}: {fault}")
                failures += 1
    print(f"{len(CASES) - failures} of {len(CASES)} cases as they should be")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
