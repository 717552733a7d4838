"""Tests of break_even.py."""

import math
import unittest

import break_even
from break_even import NONE, Profile

RAW = 6e7


class BreakEvenTest(unittest.TestCase):
    def test_serial_against_none_is_the_threshold_of_the_theorem(self):
        p = Profile("p", 8.0, 2e8, 3e8)
        combined = 1 / (1 / p.encode + 1 / p.decode)
        serial, _ = break_even.both_break_evens(p, NONE, RAW, 6)
        self.assertAlmostEqual(serial / (combined * (1 - 1 / p.ratio)), 1.0, places=6)

    def test_pipelining_raises_it_towards_the_slower_side(self):
        p = Profile("p", 8.0, 2e8, 3e8)
        few = break_even.both_break_evens(p, NONE, RAW, 2)[1]
        many = break_even.both_break_evens(p, NONE, RAW, 100000)[1]
        self.assertLess(break_even.both_break_evens(p, NONE, RAW, 1)[1], few)
        self.assertLess(few, many)
        self.assertAlmostEqual(many / 2e8, 1.0, places=3)

    def test_one_chunk_is_serial(self):
        p = Profile("p", 8.0, 2e8, 3e8)
        serial, pipelined = break_even.both_break_evens(p, NONE, RAW, 1)
        self.assertAlmostEqual(serial, pipelined)

    def test_two_profiles_cross_where_their_times_meet(self):
        slow, fast = Profile("slow", 20.0, 2e8, 3e8), Profile("fast", 5.0, 2e9, 2e9)
        for index, seconds in ((0, break_even.serial_s),
                               (1, lambda *a: break_even.pipelined_s(*a, 6))):
            link = break_even.both_break_evens(slow, fast, RAW, 6)[index]
            self.assertAlmostEqual(seconds(slow, RAW, link) / seconds(fast, RAW, link), 1.0, 6)
            self.assertLess(seconds(slow, RAW, link / 2), seconds(fast, RAW, link / 2))

    def test_better_in_all_or_in_nothing(self):
        good, bad = Profile("good", 20.0, 2e9, 3e9), Profile("bad", 5.0, 1e9, 1e9)
        self.assertTrue(all(map(math.isinf, break_even.both_break_evens(good, bad, RAW, 6))))
        self.assertEqual(break_even.both_break_evens(bad, good, RAW, 6), (0.0, 0.0))

    def test_report_names_every_profile(self):
        names = break_even.CALIBRATED + break_even.UNCALIBRATED
        rows = [{"name": name, "compression_ratio": 20.0 - i, "encode_bytes_per_s": 2e8 + 1e8 * i,
                 "decode_bytes_per_s": 3e8 + 1e8 * i} for i, name in enumerate(names)]
        rows.append({"name": "memcpy", "encode_bytes_per_s": 1e10})
        text = break_even.report({"captured": {"raw_bytes": RAW, "prefill_s": 3.0, "tokens": 1536},
                                  "bench": {"rows": rows}, "cores": 2})
        for name in names:
            self.assertIn(f"`{name}`", text)
        self.assertIn("| 5.0 % | 3.3 % |", text)  # 0.3 s and 0.2 s of 6 core-seconds


if __name__ == "__main__":
    unittest.main()
