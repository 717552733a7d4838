"""Appends the speed of this commit on this machine to bench/history.csv: ./dev bench --record

The profile `calibrated` is measured on the SmolLM2 sample with the artefact that is given.

Refuses a working tree with changes, and a machine that does something else: the load before must be
below 0.5, and afterwards below the threads that were used. 1.5 to 3 minutes.
"""

import argparse
import csv
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

HISTORY = Path(__file__).resolve().parent / "history.csv"
COLUMNS = ["date", "commit", "cpu", "isa", "threads", "name", "data", "frame_tokens",
           "encode_bytes_per_s", "decode_bytes_per_s", "encode_share_of_memcpy",
           "decode_share_of_memcpy", "compression_ratio"]
IDLE_LOAD = 0.5
# On each instruction set, beside the default plan on the best one.
ON_EVERY_ISA = ["hadamard|uniform:k_levels=16,v_levels=8|rans", "lossless"]
CALIBRATED = "calibrated"
SAMPLE = HISTORY.parent.parent / "data" / "kv" / "smollm2-128.kvs"
ISAS = {"avx512": ["avx2", "scalar"], "avx2": ["scalar"], "neon": ["scalar"]}


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HISTORY.parent, check=True,
                          capture_output=True, text=True)
    return done.stdout.strip()


def refusal(load: float, changes: str) -> str | None:
    if changes:
        return "the working tree has changes that no commit names:\n" + changes
    if load >= IDLE_LOAD:
        return f"the machine is busy (load {load:.2f}, at most {IDLE_LOAD} is idle)"
    return None


def measure(binary: str, *options: str) -> dict:
    done = subprocess.run([binary, "bench", "codec", "--json", *options], check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def lines(document: dict, date: str, commit: str) -> list[dict]:
    """Rows of the file for the rows of a document of kvserve bench codec."""
    result = []
    for row in document["rows"]:
        line = {"date": date, "commit": commit, "cpu": document["machine"]["cpu"], **row,
                "data": row["data"].rpartition("/")[2]}
        if row["name"] == "memcpy":
            line.update(encode_share_of_memcpy=1.0, decode_share_of_memcpy=1.0)
        for key in ("encode_bytes_per_s", "decode_bytes_per_s"):
            line[key] = f"{row[key]:.4g}"
        for key in ("encode_share_of_memcpy", "decode_share_of_memcpy", "compression_ratio"):
            line[key] = f"{line[key]:.4f}"
        result.append({key: line[key] for key in COLUMNS})
    return result


def append(path: Path, rows: list[dict]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--calib", required=True, help="of SmolLM2, whose KV is the sample")
    parser.add_argument("--output", type=Path, default=HISTORY)
    options = parser.parse_args()
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ":/",
                  ":(exclude,top)bench/history.csv")
    if reason := refusal(os.getloadavg()[0], changes):
        print(f"not recorded: {reason}", file=sys.stderr)
        return 1
    calibration = ["--calib", options.calib]
    documents = [measure(options.binary, *calibration)]
    profiles = [part for name in ON_EVERY_ISA for part in ("--profile", name)]
    isas = ISAS.get(documents[0]["machine"]["isa"], [])
    one_thread = ["--frame-tokens", "256", "--threads", "1"]
    for isa in isas:
        documents.append(measure(options.binary, "--isa", isa, *one_thread, *profiles))
    if isas:
        documents.append(measure(options.binary, "--isa", ",".join(isas), *one_thread, "--data",
                                 str(SAMPLE), "--profile", CALIBRATED, *calibration))
    threads = max(row["threads"] for document in documents for row in document["rows"])
    load = os.getloadavg()[0]
    if load > threads + IDLE_LOAD:
        print(f"not recorded: something else ran meanwhile (load {load:.2f})", file=sys.stderr)
        return 1
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    commit = git("rev-parse", "--short=10", "HEAD")
    # memcpy again on the other instruction sets would be the same row under another name.
    rows = lines(documents[0], date, commit)
    for document in documents[1:]:
        rows += [row for row in lines(document, date, commit) if row["name"] != "memcpy"]
    append(options.output, rows)
    print(f"{len(rows)} rows appended to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
