"""Runs the command-line tests.

run.py --binary build/release/bin/kvserve             all tests
run.py --binary build/release/bin/kvserve --record    renews golden/, to be reviewed as a diff
run.py --binary build/release/bin/kvserve help_test.py
"""

import argparse
import sys
import unittest
from pathlib import Path

import cli_case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--memory-limit-mib", type=int, default=0)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    cli_case.settings.binary = options.binary.resolve()
    cli_case.settings.record = options.record
    cli_case.settings.memory_limit_bytes = options.memory_limit_mib << 20
    folder = Path(__file__).resolve().parent
    patterns = options.files or ["*_test.py"]
    suite = unittest.TestSuite(
        unittest.TestLoader().discover(str(folder), pattern=pattern) for pattern in patterns)
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    if result.testsRun == 0:
        print("no test found", file=sys.stderr)
        return 1
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
