"""KL of each profile from the uncompressed model, by `kvserve evaluate`; remembered in build/."""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from demo import plan

SCORED_TOKENS = 64


DTYPE_NAMES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


def file_key(path: Path) -> str:
    stat = path.stat()
    return f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}"


def contents_key(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def remembered(argv: list[str], kvserve: Path, model: Path) -> dict:
    """The JSON that this command printed, from build/demo if the same binary, model, artefact,
    prompts and arguments were there before."""
    parts = [contents_key(kvserve), file_key(model), contents_key(plan.artefact(model)),
             contents_key(plan.PROMPTS), *argv]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    cache = plan.ROOT / "build" / "demo" / f"{argv[1]}-{name}.json"
    if not cache.exists():
        run = subprocess.run(argv, stdout=subprocess.PIPE)
        if run.returncode != 0:
            sys.exit(f"kvserve {argv[1]} ended with status {run.returncode}")
        cache.parent.mkdir(parents=True, exist_ok=True)
        part = cache.with_suffix(".part")
        part.write_bytes(run.stdout)
        part.replace(cache)
    return json.loads(cache.read_text())


def kv_dtype(kvserve: Path, model: Path) -> str:
    """Element type of the engine's cache for this model."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [str(kvserve), "capture", "--json", "--model", str(model), "--text",
                str(plan.PROMPTS), "--tokens", "8", "-o", f"{folder}/kv.safetensors"]
        run = subprocess.run(argv, stdout=subprocess.PIPE)
    if run.returncode != 0:
        sys.exit(f"kvserve capture ended with status {run.returncode}")
    dtype = json.loads(run.stdout)["geometry"]["dtype"]
    return DTYPE_NAMES.get(dtype, dtype)


def command(kvserve: Path, model: Path, prompts: int) -> list[str]:
    argv = [str(kvserve), "evaluate", "--json", "--model", str(model), "--calib",
            str(plan.artefact(model))]
    for profile in plan.PROFILES:
        if profile not in ("none", "lossless"):
            argv += ["--profile", profile]
    return argv + ["--data", str(plan.PROMPTS), "--context-tokens", str(plan.PROMPT_TOKENS),
                   "--scored-tokens", str(SCORED_TOKENS), "--limit", str(prompts),
                   "--retrieval", "0"]


def totals(document: dict) -> list[dict]:
    """The totals of the profiles, in the order of the command line."""
    return document.get("profiles") or [document["total"]]


def measure(kvserve: Path, model: Path, prompts: int) -> dict[str, dict]:
    """Profile -> {kl, kl_ci95, top1_agreement, compression_ratio}; none and lossless are 0 by
    definition (lossless gives the same bits back)."""
    measured = [profile for profile in plan.PROFILES if profile not in ("none", "lossless")]
    results = totals(remembered(command(kvserve, model, prompts), kvserve, model))
    exact = {"kl": 0.0, "kl_ci95": [0.0, 0.0], "top1_agreement": 1.0}
    return {"none": exact, "lossless": exact, **dict(zip(measured, results, strict=True))}
