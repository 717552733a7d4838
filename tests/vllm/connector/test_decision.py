"""What requests may ask for, and what they get."""

import os
import tempfile
import unittest

from kvserve.vllm.decision import Decider, ModeSwitch, class_of
from kvserve.vllm.settings import parse_settings

DROPPING = "window:outside=0|mixed|rans"
CALIBRATED = "affine:source=calibrated|uniform|rans"
LOSSY = "hadamard|uniform:k_levels=16,v_levels=8|rans"


def decider(lossless_only: str = "", **extra):
    return Decider(parse_settings(extra)[0], lossless_only)


class Decisions(unittest.TestCase):
    def test_default_profile(self):
        decision = decider(profile=LOSSY).decide({"do_remote_decode": True}, None)
        self.assertEqual(decision.reason, "default")
        self.assertEqual(class_of(decision.profile), decision.profile)
        self.assertFalse(decision.error)

    def test_exact_profiles_have_no_class(self):
        for profile in ("none", "lossless"):
            self.assertEqual(class_of(decider(profile=profile).decide(None, None).profile), "")

    def test_a_request_names_its_profile_in_either_place(self):
        for params, xargs in (({"kvserve": {"profile": LOSSY}}, None),
                              ({}, {"kvserve_profile": LOSSY}),
                              ({"kvserve": {"profile": LOSSY}}, {"kvserve_profile": LOSSY,
                                                                 "other": 1})):
            decision = decider(profile="none").decide(params, xargs)
            self.assertEqual(decision.reason, "requested")
            self.assertIn("hadamard", decision.profile)

    def test_one_class_for_all_spellings_of_a_profile(self):
        one = decider().decide({"kvserve": {"profile": "uniform|rans"}}, None)
        two = decider().decide({"kvserve": {"profile": "uniform:k_levels=16|rans"}}, None)
        self.assertEqual(class_of(one.profile), class_of(two.profile))

    def test_what_cannot_be_is_an_error_and_sent_uncompressed(self):
        for params, word in (({"kvserve": {"level": "high"}}, "level"),
                             ({"kvserve": {"profile": "ultra"}}, "ultra"),
                             ({"kvserve": {"profile": 4}}, "short form"),
                             ({"kvserve": "high"}, "object"),
                             ({"kvserve": {"profile": DROPPING}}, "'window' drops tokens"),
                             ({"kvserve": {"profile": CALIBRATED}}, "calibration artefact"),
                             ({"kvserve": {"min_accuracy": 0.99}}, "not supported yet"),
                             ({"kvserve": {"slo_ms": 100}}, "not supported yet")):
            decision = decider(profile=LOSSY).decide(params, None)
            self.assertIn(word, decision.error)
            self.assertEqual((decision.profile, decision.reason), ("none", "invalid_request"))

    def test_contradiction_is_an_error(self):
        decision = decider().decide({"kvserve": {"profile": "none"}}, {"kvserve_profile": LOSSY})
        self.assertIn("vllm_xargs", decision.error)

    def test_8_bit_caches_take_no_lossy_profile(self):
        decision = decider("8_bit_cache", profile=LOSSY).decide(None, None)
        self.assertEqual((decision.profile, decision.reason), ("lossless", "8_bit_cache"))
        self.assertEqual(decider("8_bit_cache", profile="none").decide(None, None).profile, "none")

    def test_observing_sends_uncompressed_and_says_what_would_have_been(self):
        decision = decider(profile=LOSSY, mode="observe").decide(None, None)
        self.assertEqual((decision.profile, decision.reason), ("none", "observe"))
        self.assertIn("hadamard", decision.would_be)

    def test_off_sends_uncompressed_and_says_no_more(self):
        decision = decider(profile=LOSSY, mode="off").decide(None, None)
        self.assertEqual((decision.profile, decision.reason, decision.would_be),
                         ("none", "off", ""))


class Switch(unittest.TestCase):
    def test_file_is_obeyed_within_a_second_and_its_absence_restores_the_setting(self):
        now = [0.0]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mode")
            settings, _ = parse_settings({"mode_file": path})
            switch = ModeSwitch(settings, clock=lambda: now[0])
            self.assertEqual(switch.mode(), "on")
            with open(path, "w", encoding="utf-8") as file:
                file.write("off\n")
            self.assertEqual(switch.mode(), "on")  # not read yet
            now[0] = 1.0
            self.assertEqual(switch.mode(), "off")
            with open(path, "w", encoding="utf-8") as file:
                file.write("rubbish")
            now[0] = 2.0
            self.assertEqual(switch.mode(), "on")
            os.remove(path)
            now[0] = 3.0
            self.assertEqual(switch.mode(), "on")


if __name__ == "__main__":
    unittest.main()
