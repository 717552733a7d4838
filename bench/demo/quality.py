"""KL of each profile from the uncompressed model, by `kvserve evaluate`; remembered in build/."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from demo import plan

SCORED_TOKENS = 64


def file_key(path: Path) -> str:
    stat = path.stat()
    return f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}"


def cache_file(kvserve: Path, model: Path, prompts: int) -> Path:
    parts = [hashlib.sha256(kvserve.read_bytes()).hexdigest(), file_key(model),
             hashlib.sha256(plan.PROMPTS.read_bytes()).hexdigest(), str(prompts), *plan.PROFILES]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return plan.ROOT / "build" / "demo" / f"quality-{name}.json"


def command(kvserve: Path, model: Path, prompts: int) -> list[str]:
    argv = [str(kvserve), "evaluate", "--json", "--model", str(model)]
    for profile in plan.PROFILES:
        if profile not in ("none", "lossless"):
            argv += ["--profile", profile]
    return argv + ["--data", str(plan.PROMPTS), "--context-tokens", str(plan.PROMPT_TOKENS),
                   "--scored-tokens", str(SCORED_TOKENS), "--limit", str(prompts)]


def totals(document: dict) -> list[dict]:
    """The totals by profile; one profile gives one object, several a list."""
    found = document.get("totals") or document["total"]
    return found if isinstance(found, list) else [found]


def measure(kvserve: Path, model: Path, prompts: int) -> dict[str, dict]:
    """Profile -> {kl, kl_ci95, top1_agreement, compression_ratio}; none and lossless are 0 by
    definition (lossless gives the same bits back)."""
    cache = cache_file(kvserve, model, prompts)
    if not cache.exists():
        run = subprocess.run(command(kvserve, model, prompts), stdout=subprocess.PIPE)
        if run.returncode != 0:
            sys.exit(f"kvserve evaluate ended with status {run.returncode}")
        cache.parent.mkdir(parents=True, exist_ok=True)
        part = cache.with_suffix(".part")
        part.write_bytes(run.stdout)
        part.replace(cache)
    measured = [profile for profile in plan.PROFILES if profile not in ("none", "lossless")]
    results = totals(json.loads(cache.read_text()))
    exact = {"kl": 0.0, "kl_ci95": [0.0, 0.0], "top1_agreement": 1.0}
    return {"none": exact, "lossless": exact, **dict(zip(measured, results, strict=True))}
