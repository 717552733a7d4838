"""Files stay readable: fails on a source file over the limit; prints longest and median."""

import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_LINES = 450
SUFFIXES = (".cc", ".h", ".cu", ".py", ".sh", ".cmake", ".def")


def lengths() -> dict[str, int]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: len((ROOT / name).read_text(errors="replace").splitlines())
            for name in listed if name.endswith(SUFFIXES) and (ROOT / name).is_file()}


def main() -> int:
    by_file = lengths()
    too_long = {name: lines for name, lines in by_file.items() if lines > LIMIT_LINES}
    longest = max(by_file, key=by_file.get)
    print(f"    {len(by_file)} files, median {statistics.median(by_file.values()):.0f} lines, "
          f"longest {by_file[longest]} ({longest})")
    for name, lines in sorted(too_long.items()):
        print(f"{name}:{LIMIT_LINES}: {lines} lines, the limit is {LIMIT_LINES}")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
