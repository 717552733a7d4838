"""Tests of history.py."""

import csv
import tempfile
import unittest
from pathlib import Path

import history

ROW = {"name": "uniform|rans", "data": "data/kv/x", "isa": "avx2", "threads": 2, "frame_tokens": 256,
       "encode_bytes_per_s": 1.4e9, "decode_bytes_per_s": 87654321.0,
       "encode_share_of_memcpy": 0.105, "decode_share_of_memcpy": 0.25,
       "compression_ratio": 4.98765, "raw_bytes": 1}
DOCUMENT = {"machine": {"cpu": "a CPU, with comma", "isa": "avx2"},
            "rows": [{**ROW, "name": "memcpy"}, ROW]}


class HistoryTest(unittest.TestCase):
    def test_rates_keep_their_unit_and_digits(self):
        memcpy, row = history.lines(DOCUMENT, "2026-01-02", "0123456789")
        self.assertEqual(float(row["encode_bytes_per_s"]), 1.4e9)
        self.assertEqual(float(row["decode_bytes_per_s"]), 8.765e7)
        self.assertEqual(row["compression_ratio"], "4.9877")
        self.assertEqual(memcpy["decode_share_of_memcpy"], "1.0000")
        self.assertEqual(row["data"], "x")
        self.assertEqual(list(row), history.COLUMNS)

    def test_appends_under_one_heading(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "history.csv")
            for commit in ("a", "b"):
                history.append(path, history.lines(DOCUMENT, "2026-01-02", commit))
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
        self.assertEqual([row["commit"] for row in rows], ["a", "a", "b", "b"])
        self.assertEqual(rows[0]["cpu"], "a CPU, with comma")

    def test_refuses_a_busy_machine_and_changes(self):
        self.assertIsNone(history.refusal(0.1, ""))
        self.assertIn("busy", history.refusal(0.5, ""))
        self.assertIn("changes", history.refusal(0.0, " M src/x.cc"))

    def test_the_file_has_the_heading(self):
        with history.HISTORY.open(newline="") as file:
            self.assertEqual(next(csv.reader(file)), history.COLUMNS)


if __name__ == "__main__":
    unittest.main()
