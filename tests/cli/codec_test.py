"""encode, decode and compare on a tiny file."""

import json

import cli_case
import kv_sample

EXACT = ["none", "lossless", "none|zstd", "none|rans"]
LOSSY = ["hadamard|uniform:k_levels=16,v_levels=8|rans", "uniform:levels=16|zstd"]
METADATA = {"kvserve.layout": "token,head,dim", "kvserve.dtype": "bfloat16",
            "kvserve.tokens": "[8,28]", "kvserve.first_token": "[8,8]", "kvserve.window": "[0,0]",
            "kvserve.rope_style": '["halves","interleaved"]',
            "kvserve.rope_theta": "[10000.0,500000.0]", "kvserve.prompt_tokens": "28",
            "kvserve.model": "00112233445566778899aabbccddeeff",
            "kvserve.key": "ffeeddccbbaa99887766554433221100"}


class CodecTest(cli_case.CliCase):
    def setUp(self):
        super().setUp()
        self.kv = self.folder / "kv.safetensors"
        self.frames = self.folder / "x.kvs"
        self.out = self.folder / "out.safetensors"

    def encode(self, profile="none", *options):
        return self.succeed_json("encode", "--profile", profile, *options, self.kv, "-o",
                                 self.frames)

    def decode(self, *options):
        return self.succeed_json("decode", self.frames, "-o", self.out, *options)

    def test_exact_profiles_return_every_bit(self):
        kv_sample.write_random(self.kv, metadata=METADATA)
        for profile in EXACT:
            for frame_tokens, frames in (("256", 1), ("7", 3), ("all", 1), ("1", 20)):
                with self.subTest(profile, frame_tokens=frame_tokens):
                    self.encode(profile, "--frame-tokens", frame_tokens)
                    self.assertEqual(self.decode()["frames"], frames)
                    self.assertEqual(kv_sample.read(self.out), kv_sample.read(self.kv))
                    self.assertTrue(self.succeed_json("compare", self.kv, self.out)["bit_exact"])

    def test_threads_change_no_byte(self):
        kv_sample.write_random(self.kv)
        self.encode(LOSSY[0], "--threads", "1")
        one = self.frames.read_bytes()
        self.encode(LOSSY[0], "--threads", "3")
        self.assertEqual(self.frames.read_bytes(), one)
        self.decode("--threads", "1")
        values = kv_sample.read(self.out)
        self.decode("--threads", "3")
        self.assertEqual(kv_sample.read(self.out), values)

    def test_a_profile_that_needs_an_artefact_is_refused_before_the_file_is_read(self):
        result = self.run_tool("encode", "--profile", "affine:source=calibrated|uniform|rans",
                               self.folder / "missing.safetensors", "-o", self.frames)
        self.assertEqual(result.returncode, 2)
        self.assertIn("needs a calibration artefact, and none was given", result.stderr)

    def test_no_command_replaces_its_own_input(self):
        kv_sample.write_random(self.kv)
        self.encode()
        (self.folder / "link").symlink_to("kv.safetensors")
        (self.folder / "hard").hardlink_to(self.kv)
        (self.folder / "p.json").write_text('{"profile":"none"}')
        before = {p.name: p.read_bytes() for p in self.folder.iterdir()}
        for output in ("kv.safetensors", "./kv.safetensors", self.kv, "link", "hard"):
            self.refuse(2, "encode", "--profile", "none", "kv.safetensors", "-o", output,
                        says="is the input kv.safetensors")
        self.refuse(2, "encode", "--profile", "./p.json", self.kv, "-o", "p.json", says="p.json")
        self.refuse(2, "decode", "x.kvs", "-o", "./x.kvs", says="is the input x.kvs")
        self.refuse(2, "decode", "x.kvs", "--calib", "p.json", "-o", "p.json", says="p.json")
        self.assertEqual({p.name: p.read_bytes() for p in self.folder.iterdir()}, before)
        for _ in range(2):  # a profile by its short form is no file
            self.succeed("encode", "kv.safetensors", "--profile", "lossless", "-o", "lossless")

    def test_errors_name_the_file_they_are_about(self):
        kv_sample.write_random(self.kv)
        self.encode()
        damaged = self.folder / "m.calib"
        damaged.write_bytes(b"KVSC" + bytes(40))
        for command in (("encode", "--profile", "none", self.kv, "-o", self.out),
                        ("decode", self.frames, "-o", self.out),
                        ("compare", self.kv, self.frames),
                        ("bench", "codec", "--data", self.frames)):
            line = self.refuse(3, *command, "--calib", damaged, says="m.calib: ")
            self.assertNotIn("x.kvs", line)
            self.assertNotIn("kv.safetensors", line)
        output = self.folder / "none" / "out"
        for command in (("encode", "--profile", "none", self.kv), ("decode", self.frames)):
            self.assertTrue(self.refuse(2, *command, "-o", output).startswith(
                f"kvserve: cannot write {output}: "))
        self.assertTrue(self.refuse(4, "decode", damaged, "-o", self.out).startswith(
            f"kvserve: {damaged}: frame 0"))

    def test_reports_add_up(self):
        kv_sample.write_random(self.kv)
        encoded = self.encode(LOSSY[0], "--frame-tokens", "8", "--threads", "1")
        raw = 2 * 2 * 20 * 2 * 64 * 2
        wire = self.frames.stat().st_size
        self.assertEqual((encoded["raw_bytes"], encoded["wire_bytes"]), (raw, wire))
        self.assertEqual(encoded["compression_ratio"], raw / wire)
        self.assertEqual(encoded["frames"], 3)
        decoded = self.decode("--threads", "1")
        self.assertEqual((decoded["raw_bytes"], decoded["wire_bytes"]), (raw, wire))
        for document, total in ((encoded, "encode_s"), (decoded, "decode_s")):
            self.assertLessEqual({"hadamard", "uniform", "rans"}, set(document["stages_s"]))
            self.assertLessEqual(sum(document["stages_s"].values()), document[total])

    def test_quality_class_and_scale_sources_are_shown(self):
        """Cases A37 and A11: nobody has to guess that KV is lossy, or whose scales are used."""
        kv_sample.write_random(self.kv)
        for profile in (*EXACT, *LOSSY):
            with self.subTest(profile):
                wanted = "lossy" if profile in LOSSY else "lossless"
                self.assertEqual(self.encode(profile)["quality_class"], wanted)
                (frame,) = self.succeed_json("inspect", self.frames)["frames"]
                self.assertEqual(frame["quality_class"], wanted)
                self.assertIn(f"quality class  {wanted}", self.succeed("inspect", self.frames))
                self.assertEqual(self.decode()["quality_class"], wanted)
                exact = kv_sample.read(self.out)[0] == kv_sample.read(self.kv)[0]
                self.assertEqual(exact, wanted == "lossless")
                for stage in frame["stages"]:
                    source = "frame" if stage["name"] in ("uniform", "rans") else "unit"
                    self.assertEqual(stage["scale_source"], {"k": source, "v": source}, stage)
                self.assertIsNone(frame["artefact"])

    def test_lossy_profiles_are_close(self):
        kv_sample.write_random(self.kv)
        for profile in LOSSY:
            with self.subTest(profile):
                self.encode(profile)
                self.decode()
                compared = self.succeed_json("compare", self.kv, self.frames)
                again = self.succeed_json("compare", self.kv, self.out)
                self.assertEqual(compared["layers"], again["layers"])
                self.assertFalse(compared["bit_exact"])
                self.assertEqual([layer["layer"] for layer in compared["layers"]], [0, 1])
                for layer in compared["layers"]:
                    for plane in "kv":
                        self.assertGreater(layer[plane]["snr_db"], 10)
                        self.assertLessEqual(layer[plane]["rmse"], layer[plane]["max_abs"])
                        self.assertGreater(layer[plane]["rmse"], 0)

    def test_same_input_gives_same_bytes(self):
        kv_sample.write_random(self.kv)
        self.encode(LOSSY[0])
        first = self.frames.read_bytes()
        self.encode(LOSSY[0])
        self.assertEqual(first, self.frames.read_bytes())

    def test_every_dtype(self):
        for dtype in ("F16", "BF16", "F32"):
            kv_sample.write_random(self.kv, dtype=dtype)
            for profile in ("lossless", LOSSY[0]):
                with self.subTest(profile, dtype=dtype):
                    self.encode(profile)
                    self.decode()
                    compared = self.succeed_json("compare", self.kv, self.out)
                    self.assertEqual(compared["bit_exact"], profile == "lossless")
                    self.assertEqual({t[0] for t in kv_sample.read(self.out)[0].values()}, {dtype})

    def test_one_token_and_single_plane(self):
        kv_sample.write_random(self.kv, tokens=1)
        for profile in (*EXACT, *LOSSY):
            with self.subTest(profile, tokens=1):
                self.encode(profile)
                self.decode()
        values = [float(i % 7) for i in range(5 * 96)]
        kv_sample.write(self.kv, {"k.0": ((5, 1, 96), values)})
        self.encode("lossless")
        self.decode()
        self.assertEqual(kv_sample.read(self.out)[0], kv_sample.read(self.kv)[0])
        self.assertIsNone(self.succeed_json("compare", self.kv, self.out)["layers"][0]["v"])

    def test_window_layers_hold_their_window(self):
        values = [float(i % 251) for i in range(20 * 2 * 8)]
        kv_sample.write(self.kv, {"k.0": ((20, 2, 8), values), "v.0": ((20, 2, 8), values),
                                  "k.1": ((6, 2, 8), values[:96]), "v.1": ((6, 2, 8), values[:96])},
                        metadata={**METADATA, "kvserve.first_token": "[8,22]",
                                  "kvserve.window": "[0,6]"})
        for frame_tokens in ("all", "8", "5", "1"):
            with self.subTest(frame_tokens=frame_tokens):
                self.encode("none|zstd", "--frame-tokens", frame_tokens)
                self.decode()
                self.assertEqual(kv_sample.read(self.out), kv_sample.read(self.kv))
                self.assertTrue(self.succeed_json("compare", self.kv, self.frames)["bit_exact"])

    def test_profile_file(self):
        kv_sample.write_random(self.kv)
        profile = self.folder / "p.json"
        names = set()
        for document in (
                {"profile": "hadamard|uniform:k_levels=16,v_levels=8|rans"},
                {"stages": [{"name": "hadamard"},
                            {"name": "uniform", "parameters": {"k_levels": 16, "v_levels": 8}},
                            {"name": "rans", "parameters": {}}]}):
            profile.write_text(json.dumps(document))
            names.add(self.encode(profile)["profile"])
        self.assertEqual(len(names), 1)
        wrong = ["", "[]", "{}", '{"profile":3}', '{"profile":"none","more":1}', '{"stages":[{}]}',
                 '{"stages":[{"name":"none|zstd"}]}', '{"stages":[{"name":"none","level":1}]}',
                 '{"stages":[{"name":"zstd","parameters":{"level":[1]}}]}',
                 '{"stages":[{"name":"zstd","parameters":{"level":1e9}}]}',
                 '{"stages":[{"name":"zstd","parameters":{"levl":1}}]}']
        lines = []
        for text in wrong:
            profile.write_text(text)
            lines.append(f"{text}\n  " + self.refuse(2, "encode", "--profile", "./p.json",
                                                     self.kv, "-o", self.frames))
        self.check_golden("profile-file-errors.txt", "".join(lines))
        self.refuse(3, "encode", "--profile", "missing.json", self.kv, "-o", self.frames)

    def test_bad_combinations_are_refused_before_any_reading(self):
        """The input does not even exist: usage comes first."""
        lines = []
        for profile in ("", "|", "hadamard|none|zstd", "rans|uniform", "uniform|uniform|rans",
                        "zstd|rans", "uniform:k_levels=1|rans", "uniform:k_levels=16,|rans",
                        "uniform:k_levels=16,k_levels=8|rans", "uniform:banana=1|rans", "lossles",
                        "hadamard:seed=-1|uniform|rans", "uniform:levels=nan|rans",
                        "uniform:levels=9223372036854775808|rans"):
            lines.append(f"'{profile}'\n  " + self.refuse(
                2, "encode", "--profile", profile, "missing.safetensors", "-o", "x.kvs"))
        self.check_golden("profile-errors.txt", "".join(lines))
        self.assert_files()

    def test_values_are_converted_never_reinterpreted(self):
        kv_sample.write(self.kv, {"k.0": ((1, 1, 2), [188.0, -0.5])}, "BF16")
        self.encode()
        self.decode()
        self.assertEqual(kv_sample.read(self.out)[0]["k.0"], ("BF16", [1, 1, 2], [188.0, -0.5]))
        for name, dtype in (("float16", "F16"), ("float32", "F32"), ("bfloat16", "BF16")):
            self.assertEqual(self.decode("--dtype", name)["dtype"], name)
            self.assertEqual(kv_sample.read(self.out)[0]["k.0"], (dtype, [1, 1, 2], [188.0, -0.5]))

    def test_float32_rounds_to_bfloat16(self):
        kv_sample.write(self.kv, {"k.0": ((1, 1, 2), [1.00390625, 1.01171875])}, "F32")
        self.encode()
        self.decode("--dtype", "bfloat16")
        self.assertEqual(kv_sample.read(self.out)[0]["k.0"][2], [1.0, 1.015625])

    def test_out_of_range_is_an_error_or_counted(self):
        kv_sample.write(self.kv, {f"k.{i}": ((1, 1, 2), [1e30, -131072.0]) for i in range(2)})
        self.encode()
        self.refuse(3, "decode", self.frames, "-o", self.out, "--dtype", "float16",
                    says="4 values are beyond the range of float16")
        self.assert_files("kv.safetensors", "x.kvs")
        self.assertEqual(self.decode("--dtype", "float16", "--clamp")["clamped_values"], 4)
        self.assertEqual(kv_sample.read(self.out)[0]["k.1"][2], [65504.0, -65504.0])

    def test_clamped_values_are_counted(self):
        """Case A08: what fp8 cannot express becomes its largest value, and somebody is told."""
        values = [448.0, 449.0, 464.0, 480.0, 1e4, 65504.0, -1e6, 1.0]
        kv_sample.write(self.kv, {"k.0": ((2, 1, 4), values), "v.0": ((2, 1, 4), values)}, "F32")
        done = self.run_tool("encode", "--profile", "fp8:scale=none", self.kv, "-o", self.frames,
                             "--json")
        # 449 and 464 round to 448; four values of each plane are beyond.
        self.assertEqual(self.parse_json(done.stdout)["clamped_values"], 8)
        self.assertIn("kvserve: warning: 8 values", done.stderr)
        self.decode()
        self.assertEqual(kv_sample.read(self.out)[0]["k.0"][2], [448.0] * 6 + [-448.0, 1.0])
        scaled = self.run_tool("encode", "--profile", "fp8", self.kv, "-o", self.frames, "--json")
        self.assertEqual(self.parse_json(scaled.stdout)["clamped_values"], 0)
        self.assertNotIn("values are beyond", scaled.stderr)

    def test_frames_larger_than_the_kv_are_told(self):
        kv_sample.write_random(self.kv, dim=8)
        done = self.run_tool("encode", "--profile", "lossless", "--frame-tokens", "1", self.kv,
                             "-o", self.frames)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"^kvserve: warning: the frames \(\d+ bytes\) are larger than "
                                      r"the KV \(2560 bytes\); more tokens per frame .*\n$")
        self.assertLess(self.succeed_json("decode", self.frames, "-o", self.out)
                        ["compression_ratio"], 1)

    def test_conversion_drops_the_fingerprints(self):
        kv_sample.write_random(self.kv, metadata=METADATA)
        self.encode()
        self.decode("--dtype", "float32")
        metadata = kv_sample.read(self.out)[1]
        self.assertNotIn("kvserve.model", metadata)
        self.assertNotIn("kvserve.key", metadata)
        self.assertEqual(metadata["kvserve.dtype"], "float32")

    def test_compare_needs_equal_shapes(self):
        kv_sample.write_random(self.kv, tokens=3)
        other = self.folder / "other.safetensors"
        for change in ({"tokens": 4}, {"tokens": 3, "heads": 1}, {"tokens": 3, "layers": 1}):
            kv_sample.write_random(other, **change)
            self.refuse(3, "compare", self.kv, other, says="the first has")
        kv_sample.write(self.kv, {"k.0": ((1, 1, 2), [1.0, float("nan")])}, "F32")
        kv_sample.write(other, {"k.0": ((1, 1, 2), [2.0, 5.0])}, "F32")
        error = self.succeed_json("compare", self.kv, other)["layers"][0]["k"]
        self.assertEqual((error["non_finite"], error["rmse"], error["max_abs"]), (1, 1.0, 1.0))

    def test_tables_for_people(self):
        kv_sample.write_random(self.kv, tokens=4)
        self.succeed("encode", "--profile", "none", self.kv, "-o", self.frames)
        self.check_golden("inspect.txt", self.succeed("inspect", self.frames))
        self.check_golden("compare.txt", self.succeed("compare", self.kv, self.frames))
