"""Presets by name, with options, and profiles in the JSON of the published artifact."""

import json
from pathlib import Path

import cli_case
import kv_sample

QUANTIZER = {"model_name": "Some-Model", "hybrid_ratio": 0.0, "high_key_max_value": 12,
             "high_value_max_value": 8, "axis_key": "channel", "axis_value": "token",
             "split_type": "head"}
NESTED = {"enabled": True, "pipeline": ["transformer", "quantizer", "codec"],
          "transformer_config": {"transform_type": "hadamard", "seed": "0x1234"},
          "quantizer_config": QUANTIZER,
          "codec_config": {"codec_type": "nvcomp", "nvcomp_algorithm": "ANS", "data_type": "|u1"},
          "min_compress_size": 1024}
FLAT = {"transform_type": "none", "heads_selection": 0, "high_key_max_value": 6,
        "high_value_max_value": 6, "axis_key": [2], "axis_value": [1, 3], "cr": 9.0}
UNIFORM = "uniform:k_levels=12,raw_first=false,grids=float16"


class PresetTest(cli_case.CliCase):
    def setUp(self):
        super().setUp()
        self.kv = self.folder / "kv.safetensors"
        kv_sample.write_random(self.kv, layers=2, tokens=40)

    def encode(self, profile):
        """(profile, stderr)"""
        done = self.run_tool("encode", "--profile", profile, self.kv, "-o", "x.kvs", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["profile"], done.stderr

    def imported(self, document):
        (self.folder / "their.json").write_text(json.dumps(document))
        profile, told = self.encode("their.json")
        self.assertEqual(told.count("\n"), 1, told)
        self.assertIn(f"their.json: imported as {profile}", told)
        return profile, told

    def refuse_file(self, document, says):
        (self.folder / "their.json").write_text(json.dumps(document))
        self.refuse(2, "encode", "--profile", "their.json", self.kv, "-o", "x.kvs", says=says)

    def test_presets_encode_and_keep_their_names(self):
        for preset in self.succeed_json("stages")["presets"]:
            with self.subTest(preset["name"]):
                self.assertTrue(preset["source"] and preset["differs"] and preset["profile"])
                if preset["needs"]:
                    continue
                self.assertEqual(self.encode(preset["name"])[0], preset["name"])
                self.succeed("decode", "x.kvs", "-o", "y.safetensors")

    def test_every_preset_is_documented(self):
        text = (Path(__file__).resolve().parents[2] / "docs" / "PRESETS.md").read_text()
        for preset in self.succeed_json("stages")["presets"]:
            self.assertIn(f"`{preset['name']}`", text)

    def test_options_override(self):
        self.assertEqual(self.encode("kivi2:levels=8,v_group=32")[0], "kivi2:levels=8")
        self.refuse(2, "encode", "--profile", "kivi2:depth=8", self.kv, "-o", "x.kvs",
                    says="unknown option 'depth'")

    def test_published_configurations_are_imported(self):
        profile, told = self.imported(NESTED)
        self.assertEqual(profile, f"hadamard:seed=4660|{UNIFORM}|rans")
        self.assertIn("; without the signs of its seed, min_compress_size", told)
        self.assertEqual(self.imported(FLAT)[0], "uniform:levels=6,raw_first=false,grids=float16|rans")
        self.assertEqual(self.imported([{"compression_config": NESTED}])[0],
                         f"hadamard:seed=4660|{UNIFORM}|rans")

    def test_parts_outside_of_the_pipeline_are_left_out(self):
        profile, told = self.imported({**NESTED, "pipeline": ["quantizer", "codec"],
                                       "codec_config": {"nvcomp_algorithm": "Bitcomp"},
                                       "min_compress_size": 0})
        self.assertEqual(profile, f"{UNIFORM}|bitpack")
        self.assertIn("codec Bitcomp (bitpack in its place)", told)
        self.assertEqual(self.imported({**NESTED, "enabled": False})[0], "none")

    def test_deeply_nested_files_are_refused(self):
        for levels in (33, 500000):
            (self.folder / "deep.json").write_text("[" * levels + "]" * levels)
            self.refuse(2, "encode", "--profile", "deep.json", self.kv, "-o", "x.kvs", says="nested")

    def test_published_configurations_that_have_no_counterpart(self):
        self.refuse_file([NESTED, NESTED], "holds 2 profiles")
        self.refuse_file({**NESTED, "transformer_config": {"transform_type": "dct"}}, "dct")
        self.refuse_file({**NESTED, "quantizer_config": {**QUANTIZER, "high_key_max_value": 1.5}},
                         "high_key_max_value")
        self.refuse_file({**NESTED, "quantizer_config": {**QUANTIZER, "axis_key": [0]}}, "axis_key")
        self.refuse_file({**NESTED, "quantizer_config": {**QUANTIZER, "hybrid_ratio": 2}},
                         "hybrid_ratio")
        self.refuse_file({**NESTED, "pipeline": ["quantiser"]}, "quantiser")
        self.refuse_file({**NESTED, "codec_config": "ANS"}, "codec_config")
