"""The schema of kv_connector_extra_config."""

import unittest
from pathlib import Path

from kvserve.vllm import connector, scheduler, worker
from kvserve.vllm.settings import SCHEMA, SettingsError, describe, parse_settings


class Settings(unittest.TestCase):
    def test_defaults_are_in_range(self):
        settings, sources = parse_settings(None)
        for name, key in SCHEMA.items():
            self.assertEqual(getattr(settings, name), key.default, name)
            self.assertEqual(key.parse(key.default), key.default, name)
            self.assertEqual(sources[name], "default")

    def test_takes_numbers_and_text(self):
        for value in (64, "64"):
            settings, sources = parse_settings({"frame_tokens": value, "lease_s": "2.5"})
            self.assertEqual(settings.frame_tokens, 64)
            self.assertEqual(settings.lease_s, 2.5)
            self.assertEqual(sources["frame_tokens"], "kv_connector_extra_config")

    def test_unknown_key_is_an_error_that_lists_what_exists(self):
        with self.assertRaisesRegex(SettingsError, "no key 'profil'.*profile, mode"):
            parse_settings({"profil": "none"})

    def test_values_outside_of_their_range_are_errors(self):
        for name, value in (("frame_tokens", 15), ("frame_tokens", 16.5), ("frame_tokens", True),
                            ("port", 65536), ("mode", "On"), ("lease_s", "soon"),
                            ("threads", None), ("host", 3), ("max_staged_bytes", "nan"),
                            ("deadline_s", float("inf")), ("stall_s", "nan")):
            with self.subTest(name=name, value=value), \
                    self.assertRaisesRegex(SettingsError, f"{name}=.*is expected"):
                parse_settings({name: value})

    def test_profile_is_checked_and_named_canonically(self):
        settings, _ = parse_settings({"profile": "uniform|rans"})
        self.assertIn("rans", settings.profile)
        with self.assertRaisesRegex(SettingsError, "profile='hadmard'.*hadmard"):
            parse_settings({"profile": "hadmard"})

    def test_a_profile_that_drops_tokens_is_refused(self):
        with self.assertRaisesRegex(SettingsError, "selector 'window' drops.*outside above 0"):
            parse_settings({"profile": "window:outside=0|mixed|rans"})
        settings, _ = parse_settings({"profile": "window:outside=0.25|mixed|rans"})
        self.assertIn("window", settings.profile)

    def test_a_fallback_keeps_every_token_and_needs_no_calibration(self):
        settings, _ = parse_settings({"fallback": "published"})
        self.assertEqual(settings.fallback, "published")
        for value, why in (("affine:source=calibrated|uniform|rans", "calibration artefact itself"),
                           ("window:outside=0|mixed|rans", "drops tokens"), ("hadmard", "hadmard")):
            with self.subTest(value=value), \
                    self.assertRaisesRegex(SettingsError, f"fallback=.*is expected.*{why}"):
                parse_settings({"fallback": value})

    def test_every_value_is_echoed_with_its_source(self):
        line = describe(*parse_settings({"threads": 2}))
        for name in SCHEMA:
            self.assertIn(f"{name}=", line)
        self.assertIn("threads=2 (set)", line)
        self.assertNotIn("frame_tokens=256 (set)", line)

    def test_what_is_logged_is_shown(self):
        """vLLM gives a handler and a level to the loggers below "vllm" alone."""
        for module in (connector, scheduler, worker):
            self.assertTrue(module.logger.name.startswith("vllm."), module.__name__)

    def test_the_documentation_lists_the_schema(self):
        text = (Path(__file__).parents[3] / "docs" / "VLLM.md").read_text(encoding="utf-8")
        for name, key in SCHEMA.items():
            default = f"`{key.default}`" if key.default != "" else "empty"
            self.assertIn(f"| `{name}` | {default} | {key.unit} | {key.range} | {key.help} |", text)


if __name__ == "__main__":
    unittest.main()
