"""The C ABI as it is installed: what the library shows, and an example built by pkg-config."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = argparse.Namespace()


def run(*command: str, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.prefix = Path(cls.folder.name) / "prefix"
        run(OPTIONS.cmake, "--install", OPTIONS.build, "--prefix", str(cls.prefix),
            "--component", "capi")
        cls.library = next(cls.prefix.rglob("libkvserve.so"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_shows_kvserve_symbols_and_no_others(self):
        names = [line.split()[-1] for line in
                 run("nm", "--dynamic", "--defined-only", str(self.library)).splitlines()]
        self.assertEqual([name for name in names if not re.match(r"kvserve_[a-z]", name)], [])
        declared = set()
        for header in (self.prefix / "include" / "kvserve").glob("*.h"):
            declared |= set(re.findall(r"\b(kvserve_\w+)\(", header.read_text()))
        self.assertEqual(set(names), declared)

    def test_an_example_builds_by_pkg_config(self):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.library.parent),
                       "PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig")}
        flags = run("pkg-config", "--define-prefix", "--cflags", "--libs", "kvserve",
                    env=environment).split()
        program = str(self.prefix / "frames")
        run(OPTIONS.cc, str(ROOT / "examples/c/frames.c"), *flags, "-o", program)
        self.assertRegex(run(program, env=environment), r"1048576 bytes become \d+;")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--build", "--cmake", "--cc"):
        parser.add_argument(option, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
