"""Base of the command-line tests: runs the tool in an empty folder and checks what it says."""

import json
import re
import resource
import subprocess
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent / "golden"


@dataclass
class Settings:
    binary: Path = Path("kvserve")
    record: bool = False
    memory_limit_bytes: int = 0


settings = Settings()


def limit_memory() -> None:
    if settings.memory_limit_bytes:
        limit = settings.memory_limit_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class CliCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kvserve-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_tool(self, *arguments, env=None):
        return subprocess.run([str(settings.binary), *map(str, arguments)], cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=600, check=False, preexec_fn=limit_memory, env=env)

    def succeed(self, *arguments) -> str:
        """Standard output of a run that must succeed and say nothing else, but that frames of a
        file as tiny as those of tests are larger than it."""
        done = self.run_tool(*arguments)
        told = re.sub(r"^kvserve: warning: the frames \(.*\n", "", done.stderr)
        self.assertEqual((done.returncode, told), (0, ""), arguments)
        return done.stdout

    def succeed_json(self, *arguments) -> dict:
        return self.parse_json(self.succeed(*arguments, "--json"))

    def parse_json(self, stdout: str) -> dict:
        """One document on one line, with what every document carries."""
        self.assertEqual(stdout.count("\n"), 1, stdout)
        document = json.loads(stdout)
        self.assertRegex(document["kvserve_version"], r"^\d+\.\d+\.\d+")
        self.assertLessEqual({"cpu", "isa", "cores", "gpu"}, set(document["machine"]))
        self.assertEqual(document["argv"][0], str(settings.binary))
        return document

    def refuse(self, status: int, *arguments, says: str = "") -> str:
        """The one line on stderr of a run that must fail with this exit status."""
        done = self.run_tool(*arguments)
        self.assertEqual(done.returncode, status, (arguments, done.stderr, done.stdout))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("kvserve: "), done.stderr)
        self.assertIn(says, done.stderr)
        return done.stderr

    def check_golden(self, name: str, text: str) -> None:
        path = GOLDEN / name
        if settings.record:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self.assertTrue(path.is_file(), f"{path} is missing; run.py --record writes it")
        self.assertEqual(text, path.read_text(), f"{name}: run.py --record renews it")

    def assert_files(self, *names):
        """Nothing but these files is left in the folder."""
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), sorted(names))
