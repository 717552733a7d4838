"""What calibrated transform coding costs on this machine, and on which links it pays.

Computes the KV of a text with the embedded engine, which measures prefill, then codes it with one
thread: `./dev bench break-even`. Prints rates per core, coding as a share of prefill (core-seconds
of both), and link speeds below which a profile beats no compression and each uncalibrated profile:
by the serial model (encode, send, decode one after the other) and the pipelined one (in chunks of a
frame, all three at once). docs/PERFORMANCE.md has the formulas.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RECORDS = Path(__file__).resolve().parent.parent / "data" / "evaluation" / "records.jsonl"
FRAME_TOKENS = 256
CALIBRATED = ["calibrated:step=0.7", "calibrated", "calibrated:step=1.4", "calibrated:step=2"]
UNCALIBRATED = ["published:k_levels=24,v_levels=12", "published", "published:v_levels=8",
                "published:k_levels=8,v_levels=5", "quarot4", "kivi-quarot"]
LINKS = [10 ** (exponent / 20) for exponent in range(60, 221)]  # bytes/s, 1 KB/s to 100 GB/s


@dataclass
class Profile:
    name: str
    ratio: float
    encode: float = math.inf  # raw bytes/s
    decode: float = math.inf


NONE = Profile("none", 1.0)


def serial_s(profile: Profile, raw_bytes: float, link: float) -> float:
    return raw_bytes * (1 / profile.encode + 1 / (link * profile.ratio) + 1 / profile.decode)


def pipelined_s(profile: Profile, raw_bytes: float, link: float, chunks: int) -> float:
    """The first chunk passes all steps, the others follow at the pace of the slowest."""
    steps = [1 / profile.encode, 1 / (link * profile.ratio), 1 / profile.decode]
    chunk = raw_bytes / chunks
    return chunk * sum(steps) + (raw_bytes - chunk) * max(steps)


def break_even(seconds_a, seconds_b) -> float:
    """The link speed up to which a is never slower than b, from slow links on; 0: not even there."""
    best = 0.0
    for link in LINKS:
        if seconds_a(link) >= seconds_b(link):
            break
        best = link
    if best in (0.0, LINKS[-1]):
        return math.inf if best else 0.0
    low, high = best, best * 10 ** (1 / 20)
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if seconds_a(middle) < seconds_b(middle) else (low, middle)
    return low


def both_break_evens(a: Profile, b: Profile, raw_bytes: float, chunks: int) -> tuple[float, float]:
    return (break_even(lambda link: serial_s(a, raw_bytes, link),
                       lambda link: serial_s(b, raw_bytes, link)),
            break_even(lambda link: pipelined_s(a, raw_bytes, link, chunks),
                       lambda link: pipelined_s(b, raw_bytes, link, chunks)))


def bits_text(bytes_per_s: float) -> str:
    if bytes_per_s == 0:
        return "never"
    if math.isinf(bytes_per_s):
        return "always"
    bits = 8 * bytes_per_s
    return f"{bits / 1e9:.2f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.0f} Mbit/s"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def run_json(*command: str) -> dict:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def longest_text(records: Path) -> str:
    with records.open() as file:
        return max((json.loads(line).get("text", "") for line in file), key=len)


def measure(options: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        kv = str(Path(folder, "kv.safetensors"))
        text = Path(folder, "text.txt")
        text.write_text(longest_text(options.records))
        captured = run_json(options.binary, "capture", "--model", options.model, "--text",
                            str(text), "--tokens", str(options.tokens), "-o", kv, "--json")
        profiles = [part for name in CALIBRATED + UNCALIBRATED for part in ("--profile", name)]
        bench = run_json(options.binary, "bench", "codec", "--data", kv, "--calib", options.calib,
                         "--frame-tokens", str(FRAME_TOKENS), "--threads", "1", "--seconds",
                         str(options.seconds), "--json", *profiles)
    return {"captured": captured, "bench": bench, "cores": os.cpu_count()}


def report(document: dict) -> str:
    captured, cores = document["captured"], document["cores"]
    raw, prefill = captured["raw_bytes"], captured["prefill_s"]
    chunks = math.ceil(captured["tokens"] / FRAME_TOKENS)
    rows = {row["name"]: row for row in document["bench"]["rows"]}
    profiles = {name: Profile(name, row["compression_ratio"], row["encode_bytes_per_s"],
                              row["decode_bytes_per_s"])
                for name, row in rows.items() if name != "memcpy"}
    share = lambda rate: f"{100 * raw / rate / (prefill * cores):.1f} %"
    costs = [[f"`{p.name}`", f"{p.ratio:.2f}", f"{p.encode / 1e6:.0f}", f"{p.decode / 1e6:.0f}",
              share(p.encode), share(p.decode),
              *(bits_text(link) for link in both_break_evens(p, NONE, raw, chunks))]
             for p in profiles.values()]
    wins = [[f"`{name}`", *(" / ".join(bits_text(link) for link in both_break_evens(
        profiles[name], profiles[other], raw, chunks)) for other in UNCALIBRATED)]
            for name in CALIBRATED]
    return (f"{captured['tokens']} tokens, {raw / 1e6:.1f} MB raw, prefill {prefill:.2f} s on "
            f"{cores} cores; memcpy {rows['memcpy']['encode_bytes_per_s'] / 1e9:.1f} GB/s\n\n"
            + table(["profile", "ratio", "encode MB/s", "decode MB/s", "encode of prefill",
                     "decode of prefill", "beats none below, serial", "pipelined"], costs)
            + "\nCalibrated beats the profile below, serial / pipelined:\n\n"
            + table(["", *(f"`{name}`" for name in UNCALIBRATED)], wins))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--calib", required=True, help="calibration artefact of the model")
    parser.add_argument("--records", type=Path, default=RECORDS,
                        help="records of an evaluation; the longest text of them is the prompt")
    parser.add_argument("--tokens", type=int, default=1536)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each direction of a profile")
    parser.add_argument("--json", action="store_true", help="what was measured, not the tables")
    options = parser.parse_args()
    document = measure(options)
    print(json.dumps(document) if options.json else report(document), end="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
