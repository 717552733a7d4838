"""The kvserve command: `kvserve ...` and `python -m kvserve ...` become the program itself."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "kvserve"
    if not program.exists():
        sys.exit(f"kvserve: {program} is missing: this package was not installed from a wheel")
    os.execv(program, ["kvserve", *sys.argv[1:]])


if __name__ == "__main__":
    main()
