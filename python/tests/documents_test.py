"""The snippets of docs/PYTHON.md and README.md run as they stand, each document as one program."""

import contextlib
import io
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Documents(unittest.TestCase):
    def test_snippets_run(self):
        for name in ("README.md", "docs/PYTHON.md"):
            with self.subTest(document=name):
                text = (ROOT / name).read_text()
                blocks = list(re.finditer(r"^```python\n(.*?)^```", text,
                                          re.MULTILINE | re.DOTALL))
                self.assertTrue(blocks, "there are no snippets")
                names: dict = {}
                for block in blocks:
                    line = text[:block.start(1)].count("\n")
                    code = compile("\n" * line + block[1], str(ROOT / name), "exec")
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(code, names)


if __name__ == "__main__":
    unittest.main()
