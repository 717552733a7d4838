"""./dev bench peers: KVServe beside other KV compressors for the CPU, one thread, the same tensor.

Prints a table and writes out/peers.json. KVServe runs before and after the peers and its slower
figure counts; its working set does not fit the caches while the peers' does (2.9 MB by default), and
peers run on the memory they ran on before. Every figure is the median of the repetitions. Beside each
peer stands the fastest of our profiles that is no worse in ratio, in error of K and in error of V.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from peers import kv_tensor
from peers.serdes import Peer, all_peers

OURS = ["lossless", "uniform:levels=255|none", "uniform:levels=192|bitpack",
        "uniform:levels=128|bitpack", "uniform:k_levels=64,v_levels=128|bitpack",
        "uniform:k_levels=48,v_levels=96|rans", "uniform:k_levels=64,v_levels=128|rans",
        "uniform:levels=32|bitpack", "uniform:k_levels=32,v_levels=64|rans",
        "uniform:k_levels=16,v_levels=32|rans",
        "uniform:k_levels=12,v_levels=24|rans", "uniform|bitpack", "uniform|rans",
        "hadamard|uniform:levels=16|bitpack", "hadamard|uniform:levels=16|rans",
        "hadamard|uniform:k_levels=16,v_levels=8|rans",
        "hadamard|uniform:k_levels=8,v_levels=11|rans", "hadamard|uniform:levels=8|rans"]


def combined(encode: float, decode: float) -> float:
    return 1 / (1 / encode + 1 / decode)


def bytes_per_s(work, raw_bytes: int, seconds: float) -> float:
    rates = []
    begin = time.perf_counter()
    while len(rates) < 5 or (len(rates) < 50 and time.perf_counter() - begin < seconds):
        start = time.perf_counter()
        work()
        rates.append(raw_bytes / (time.perf_counter() - start))
        if len(rates) >= 3 and time.perf_counter() - begin > 10 * seconds:
            break
    return statistics.median(rates)


def measure_peer(peer: Peer, seconds: float) -> dict:
    raw_bytes = peer.kv.numel() * peer.kv.itemsize
    wire_bytes = peer.encode()
    peer.decode()
    k_error, v_error = kv_tensor.relative_error(peer.kv, peer.decoded)
    encode = bytes_per_s(peer.encode, raw_bytes, seconds)
    decode = bytes_per_s(peer.decode, raw_bytes, seconds)
    return {"name": peer.name, "encode_bytes_per_s": encode, "decode_bytes_per_s": decode,
            "combined_bytes_per_s": combined(encode, decode),
            "compression_ratio": raw_bytes / wire_bytes,
            "k_rms_relative": k_error, "v_rms_relative": v_error}


def run_ours(binary: str, data: Path, seconds: float) -> dict[str, dict]:
    command = [binary, "bench", "codec", "--data", str(data), "--frame-tokens", "256",
               "--threads", "1", "--seconds", str(seconds), "--memcpy-bytes", str(1 << 28),
               "--json"]
    for profile in OURS:
        command += ["--profile", profile]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {row["name"]: row for row in json.loads(done.stdout)["rows"]}


def slower(first: dict[str, dict], second: dict[str, dict]) -> list[dict]:
    rows = []
    for name, row in first.items():
        for key in ("encode_bytes_per_s", "decode_bytes_per_s"):
            row[key] = min(row[key], second[name][key])
        row["combined_bytes_per_s"] = combined(row["encode_bytes_per_s"],
                                               row["decode_bytes_per_s"])
        if name != "memcpy":
            rows.append(row)
    return rows


def no_worse(row: dict, peer: dict) -> bool:
    return (row["compression_ratio"] >= peer["compression_ratio"] and
            all(row[key] <= peer[key] for key in ("k_rms_relative", "v_rms_relative")))


def match(peer: dict, ours: list[dict]) -> None:
    fit = [row for row in ours if no_worse(row, peer)]
    best = max(fit, key=lambda row: row["combined_bytes_per_s"], default=None)
    peer["matched_by"] = best and best["name"]
    peer["times_faster"] = best and best["combined_bytes_per_s"] / peer["combined_bytes_per_s"]


def line(row: dict, width: int) -> str:
    rates = " ".join(f"{row[f'{key}_bytes_per_s'] / 1e9:9.3f}"
                     for key in ("encode", "decode", "combined"))
    return (f"{row['name']:{width}} {rates} {row['compression_ratio']:7.3f} "
            f"{row['k_rms_relative']:8.4f} {row['v_rms_relative']:8.4f}")


def report(peers: list[dict], ours: list[dict]) -> None:
    width = max(len(row["name"]) for row in peers + ours)
    print(f"{'GB/s, one thread':{width}} {'encode':>9} {'decode':>9} {'combined':>9} "
          f"{'ratio':>7} {'K error':>8} {'V error':>8}")
    for row in peers + ours:
        print(line(row, width))
    print()
    for peer in peers:
        if peer["matched_by"] is None:
            print(f"{peer['name']}: none of ours has its ratio at its errors")
        else:
            print(f"{peer['name']}: {peer['times_faster']:.1f} times as fast is "
                  f"{peer['matched_by']}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/bin/kvserve")
    parser.add_argument("--data", type=Path, help="KV file (default: the sample of data/kv)")
    parser.add_argument("--dtype", choices=["float16", "bfloat16"], default="bfloat16")
    parser.add_argument("--seconds", type=float, default=1.0, help="per figure")
    parser.add_argument("--output", type=Path, default=Path("out/peers.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="kvserve-peers-") as folder:
        source = options.data
        if source is None:
            source = Path(folder, "sample.safetensors")
            subprocess.run([options.binary, "decode", "data/kv/smollm2-128.kvs", "-o",
                            str(source)], check=True, capture_output=True)
        kv, head_dim = kv_tensor.read(source)
        kv = kv.to(getattr(torch, options.dtype))
        data = Path(folder, "kv.safetensors")
        kv_tensor.write(data, kv, head_dim)
        before = run_ours(options.binary, data, options.seconds)
        peers = [measure_peer(peer, options.seconds) for peer in all_peers(kv, head_dim)]
        ours = slower(before, run_ours(options.binary, data, options.seconds))
    for peer in peers:
        match(peer, ours)
    report(peers, ours)
    if load > 0.5:
        print(f"The machine was busy (load {load:.2f}): the figures are lower bounds.")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"peers": peers, "ours": ours, "load_average_1min": load,
                                          "raw_bytes": kv.numel() * kv.itemsize,
                                          "dtype": options.dtype}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
