"""The package itself: imports, the command, stages, the stub of the extension."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import kvserve

SOURCES = Path(__file__).resolve().parents[1] / "kvserve"


def python(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True)


class Package(unittest.TestCase):
    def test_import_needs_neither_torch_nor_vllm_nor_numpy(self):
        program = "import sys; [sys.modules.__setitem__(name, None) for name in sys.argv[1:]]; " \
                  "import kvserve; kvserve.stages(); kvserve.Profile('lossless')"
        done = python("-c", program, "torch", "vllm", "numpy")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_is_typed_and_exports_what_it_says(self):
        self.assertTrue((Path(kvserve.__file__).parent / "py.typed").exists())
        self.assertEqual(len(set(kvserve.__all__)), len(kvserve.__all__))
        for name in kvserve.__all__:
            self.assertTrue(hasattr(kvserve, name), name)

    def test_everything_public_is_documented(self):
        for name in kvserve.__all__:
            thing = getattr(kvserve, name)
            if isinstance(thing, type) or callable(thing):
                self.assertTrue(thing.__doc__, name)

    def test_command(self):
        for words in (["-m", "kvserve"], ["-c", "from kvserve.__main__ import main; main()"]):
            done = python(*words, "--version")
            self.assertEqual(done.stdout.strip(), f"kvserve {kvserve.__version__}", done.stderr)
        self.assertEqual(python("-m", "kvserve", "no-such-verb").returncode, 2)

    def test_stages_are_those_of_the_command(self):
        listed = json.loads(python("-m", "kvserve", "stages", "--json").stdout)["stages"]
        stages = kvserve.stages()
        self.assertEqual([stage.name for stage in stages], [row["name"] for row in listed])
        for stage, row in zip(stages, listed):
            with self.subTest(stage=stage.name):
                self.assertEqual((stage.kind, stage.id, stage.version, stage.lossless,
                                  list(stage.devices), stage.summary),
                                 tuple(row[key] for key in ("kind", "id", "version", "lossless",
                                                            "devices", "summary")))
                self.assertEqual({name: [p.id, p.type, list(p.range), p.default, p.unit, p.help]
                                  for name, p in stage.parameters.items()},
                                 {name: [p[key] for key in ("id", "type", "range", "default",
                                                            "unit", "help")]
                                  for name, p in row["parameters"].items()})

    def test_presets_are_those_of_the_command(self):
        listed = json.loads(python("-m", "kvserve", "stages", "--json").stdout)["presets"]
        presets = kvserve.presets()
        self.assertEqual([(p.name, p.profile, p.source, p.differs) for p in presets],
                         [tuple(row[key] for key in ("name", "profile", "source", "differs"))
                          for row in listed])
        self.assertEqual(str(kvserve.Profile("kivi2:levels=8")), "kivi2:levels=8")

    def test_profiles(self):
        profile = kvserve.Profile("hadamard|uniform:k_levels=16,v_levels=8|rans")
        self.assertEqual(str(profile), "hadamard|uniform|rans")
        self.assertEqual(profile, kvserve.Profile("hadamard|uniform|rans"))
        self.assertEqual(len({profile, kvserve.Profile("hadamard|uniform|rans")}), 1)
        self.assertNotEqual(profile, kvserve.Profile("uniform|rans"))
        self.assertFalse(profile.lossless or profile.needs_calibration)
        self.assertEqual(profile.may_drop, "")
        self.assertTrue(kvserve.Profile("lossless").lossless and kvserve.Profile("none").lossless)
        self.assertTrue(kvserve.Profile("uniform|rans:tables=calibrated").needs_calibration)


@unittest.skipUnless(importlib.util.find_spec("nanobind"), "nanobind is not installed")
class Stub(unittest.TestCase):
    """_native.pyi is what the extension says of itself; KVSERVE_RECORD_GOLDEN=1 records it."""

    def test_is_up_to_date(self):
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "_native.pyi"
            done = python("-m", "nanobind.stubgen", "-q", "-m", "kvserve._native", "-o",
                          str(written))
            self.assertEqual(done.returncode, 0, done.stderr)
            recorded = SOURCES / "_native.pyi"
            if os.environ.get("KVSERVE_RECORD_GOLDEN"):
                recorded.write_text(written.read_text())
            self.assertEqual(recorded.read_text(), written.read_text())


if __name__ == "__main__":
    unittest.main()
