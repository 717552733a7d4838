"""The demo: a prefill node and a decode node serve a real model over links of several speeds, with
and without compression. Writes out/demo.json and out/report.html."""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from demo import plan, quality, report, results, summary
from demo.client import RequestFailed
from demo.link import make_link
from demo.measure import ModelRun, Runner


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev demo", description=__doc__)
    parser.add_argument("--full", action="store_true", help="adds Gemma and more repeats")
    parser.add_argument("--loopback", action="store_true",
                        help="no network namespaces: loopback, paced by the prefill node")
    parser.add_argument("--kvserve", type=Path, default=plan.KVSERVE, help="the binary to measure")
    parser.add_argument("--out", type=Path, default=plan.OUT)
    return parser.parse_args()


def facts(kvserve: Path) -> dict:
    """What the tool says about itself and the machine."""
    run = subprocess.run([str(kvserve), "stages", "--json"], check=True, capture_output=True)
    said = json.loads(run.stdout)
    return {"kvserve_version": said["kvserve_version"], "machine": said["machine"],
            "argv": sys.argv}


def cpu_ticks() -> tuple[int, int]:
    """(idle, all) ticks of all cores since boot."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def busy_machine(seconds: float = 2) -> list[str]:
    """Other programs on the cores make every time here too long, and differently so."""
    idle, total = cpu_ticks()
    time.sleep(seconds)
    idle_later, total_later = cpu_ticks()
    busy = 1 - (idle_later - idle) / max(1, total_later - total)
    if busy < 0.25:
        return []
    return [f"Other programs were using {busy:.0%} of this machine when the run began: times are too "
            f"long and vary, costs mean little."]


def measure_model(name: str, model: Path, link, options: argparse.Namespace,
                  the_plan: plan.Plan) -> ModelRun:
    print(f"==> {name}: quality of each profile ({the_plan.evaluated_prompts} prompts)", flush=True)
    started = time.monotonic()
    qualities = quality.measure(options.kvserve, model, the_plan.evaluated_prompts)
    print(f"    {time.monotonic() - started:.0f} s")
    run = ModelRun(name, {profile: found["kl"] for profile, found in qualities.items()},
                   quality.kv_dtype(options.kvserve, model))
    runner = Runner(run, model, link, options.kvserve, the_plan, plan.PROFILES)
    print(f"==> {name}: serving, {link.describe}")
    try:
        runner.warm_up()
        runner.measure()
    finally:
        runner.close()
    return run


def write(result: dict, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "demo.json").write_text(json.dumps(result, allow_nan=False) + "\n")
    (out / "report.html").write_text(report.page(result))
    print(f"wrote {out / 'demo.json'} and {out / 'report.html'}")


def main() -> int:
    options = arguments()
    the_plan = plan.FULL if options.full else plan.QUICK
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.time()
    about = facts(options.kvserve)
    cautions = busy_machine()
    for caution in cautions:
        print(f"WARNING: {caution}")
    runs = []
    link = make_link(options.loopback)
    try:
        for name, model in the_plan.models.items():
            runs.append(measure_model(name, model, link, options, the_plan))
    finally:
        link.close()
    result = results.document(runs, {
        **about, "link": link.describe, "warnings": cautions,
        "date": time.strftime("%Y-%m-%d", time.gmtime(started)),
        "seconds": round(time.time() - started)})
    summary.print_table(result)
    summary.print_checks(result)
    write(result, options.out)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except RequestFailed as error:
        sys.exit(f"a request of the demo failed: {error}")
