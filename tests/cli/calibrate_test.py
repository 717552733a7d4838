"""calibrate from KV files, and what inspect says of artefacts (builds with the embedded engine)."""

import cli_case
import kv_sample

MODEL = "00112233445566778899aabbccddeeff"


class CalibrateTest(cli_case.CliCase):
    def setUp(self):
        super().setUp()
        if "\n  calibrate " not in self.succeed("--help"):
            self.skipTest("this build has no calibrate")
        self.kv = self.folder / "kv.safetensors"
        self.calib = self.folder / "m.calib"
        kv_sample.write_random(self.kv, tokens=40, metadata={"kvserve.model": MODEL})

    def calibrate(self, *options):
        return self.succeed_json("calibrate", "--data", self.kv, *options, "-o", self.calib)

    def test_document(self):
        document = self.calibrate("--profile", "hadamard|uniform:k_levels=16,v_levels=8",
                                  "--profile", "lossless", "--frame-tokens", "16")
        self.assertEqual(document["layers"], 2)
        self.assertEqual(document["bytes"], self.calib.stat().st_size)
        self.assertEqual(document["data"], [{"path": str(self.kv), "texts": 0, "tokens": 40}])
        self.assertGreater(document["seconds"], 0)
        self.assertRegex(document["checksum"], "^[0-9a-f]{32}$")
        self.assertEqual((document["model"], document["tokens"]), (MODEL, 39))  # without token 0
        self.assertEqual([row["alphabet"] for row in document["entropy"]], [8, 16, 256])
        self.assertEqual(document["klt_planes"], {"heads": 4, "joint": 4})
        self.assertEqual(document["left_out"], ["queries", "head-scores"])  # KV files hold none

    def test_what_is_computed_can_be_chosen(self):
        for options, planes in ((("--compute", "none"), (0, 0)), (("--compute", "klt"), (4, 4)),
                                (("--joint-columns", "8"), (4, 0))):
            with self.subTest(options):
                document = self.calibrate(*options)
                self.assertEqual(tuple(document["klt_planes"].values()), planes)
        self.assertEqual(self.calibrate("--compute", "none")["left_out"], [])
        for what in ("queries", "klt,head-scores"):
            self.refuse(2, "calibrate", "--data", self.kv, "--compute", what, "-o", "x.calib",
                        says="needs queries: give --model and texts")
        for option in "--limit", "--joint-columns":
            self.refuse(2, "calibrate", "--data", self.kv, option, "-1", "-o", "x.calib",
                        says=option)
        self.refuse(2, "calibrate", "--data", self.kv, "--compute", "none,klt", "-o", "x.calib",
                    says="stands alone")
        self.refuse(2, "calibrate", "--data", self.kv, "--compute", "banana", "-o", "x.calib",
                    says="banana")

    def test_transforms_need_texts(self):
        self.refuse(2, "calibrate", "--data", self.kv, "--compute", "transform", "-o", "x.calib",
                    says="--compute transform needs queries: give --model and texts")
        for option in "--sensitivity", "--in-kind":
            self.refuse(2, "calibrate", "--data", self.kv, option, self.kv, "-o", "x.calib",
                        says="--sensitivity and --in-kind are for --compute transform")
        for option, value in (("--predictor-bits", "1"), ("--whitening-bits", "9"),
                              ("--query-bits", "16"), ("--predictor-layers", "9")):
            self.refuse(2, "calibrate", "--data", self.kv, option, value, "-o", "x.calib",
                        says=option)
        for steps in ("0", "1,banana", "1e9"):
            self.refuse(2, "calibrate", "--data", self.kv, "--steps", steps, "-o", "x.calib",
                        says="--steps")
        self.refuse(2, "calibrate", "--data", self.kv, "--compute", "transform", "--selectors",
                    "banana", "-o", "x.calib", says="banana")
        self.assertIsNone(self.calibrate()["transform"])
        self.assertIsNone(self.succeed_json("inspect", self.calib)["calibration"]["transform"])
        self.assertEqual(self.calibrate()["left_out"], ["queries", "head-scores"])

    def test_profiles_that_need_queries_have_none_here(self):
        self.refuse(2, "calibrate", "--data", self.kv, "--profile", "snapkv", "-o", "x.calib",
                    says="'attention' ranks tokens by the prompt's queries")

    def test_klt_of_a_kv_file_serves_to_code_it(self):
        self.calibrate()
        frames = self.folder / "x.kvs"
        for profile in ("unrope|klt|uniform:levels=64,axis=tensor|rans",
                        "unrope|klt:scope=joint|uniform|rans"):
            with self.subTest(profile):
                self.succeed("encode", "--profile", profile, "--calib", self.calib, self.kv, "-o",
                             frames)
                compared = self.succeed_json("compare", self.kv, frames, "--calib", self.calib)
                self.assertGreater(compared["layers"][1]["k"]["snr_db"], 10)
        self.refuse(2, "encode", "--profile", "klt|uniform", "--calib", self.calib, self.kv, "-o",
                    "y.kvs", says="put 'unrope' before it")

    def test_inspect_shows_the_artefact(self):
        made = self.calibrate("--profile", "uniform:levels=5")
        document = self.succeed_json("inspect", self.calib)
        shown = document["calibration"]
        self.assertEqual(document["file_bytes"], made["bytes"])
        self.assertEqual(shown["checksum"], made["checksum"])
        self.assertEqual(shown["sections"], ["channel_statistics", "entropy_classes", "klt_heads",
                                             "klt_joint"])
        self.assertEqual(shown["klt_planes"], {"heads": 4, "joint": 4})
        self.assertEqual((shown["query_layers"], shown["head_scores"]), (0, []))
        self.assertEqual(shown["planes_with_statistics"], 4)
        self.assertEqual(len(shown["geometry"]["layers"]), 2)
        (classes,) = shown["entropy"]
        self.assertEqual(classes["alphabet"], 5)
        for table in classes["frequencies"]:
            self.assertEqual((len(table), sum(table)), (5, 4096))
            self.assertGreaterEqual(min(table), 1)
        text = self.succeed("inspect", self.calib)
        self.assertIn(made["checksum"], text)
        self.assertIn("uniform:levels=5", text)

    def test_kv_files_are_known_by_their_contents(self):
        self.calibrate()
        made = self.calib.read_bytes()
        other = self.folder / "kv.bin"
        self.kv.rename(other)
        self.succeed("calibrate", "--data", other, "-o", self.calib)
        # The source text names the file, and the fingerprint covers it: the rest is the same.
        self.assertEqual(len(self.calib.read_bytes()), len(made) - len("safetensors") + len("bin"))
        self.refuse(3, "calibrate", "--data", self.calib, "-o", "x.calib", says="m.calib: is no text")
        other.write_text("Some words.")
        other.rename(self.kv)
        self.refuse(3, "calibrate", "--data", self.kv, "-o", "x.calib", says="kv.safetensors")

    def test_the_data_is_not_replaced(self):
        before = self.kv.read_bytes()
        self.refuse(2, "calibrate", "--data", self.kv, "-o", "./kv.safetensors",
                    says="is the input")
        model = self.folder / "m.gguf"
        model.write_bytes(b"GGUF")
        for command in (("calibrate", "--model", model, "--data", self.kv),
                        ("dequantize", "--model", model),
                        ("capture", "--model", model, "--text", self.kv)):
            self.refuse(2, *command, "-o", "m.gguf", says="is the input")
        self.refuse(2, "capture", "--model", model, "--text", self.kv, "-o", self.kv,
                    says="is the input")
        self.refuse(3, "capture", "--model", model, "--text", self.kv, "-o", "x.safetensors",
                    says="kv.safetensors: is no text")
        self.assertEqual(self.kv.read_bytes(), before)
        self.assert_files("kv.safetensors", "m.gguf")

    def test_a_model_that_is_none_leaves_no_file(self):
        """Engines start the process anew; what was opened before must not stay behind."""
        model, text = self.folder / "m.gguf", self.folder / "t.txt"
        model.write_bytes(b"GGUF")
        text.write_text("Some words.")
        for command in (("calibrate", "--data", text), ("capture", "--text", text)):
            self.run_tool(*command, "--model", model, "-o", "x")
        self.assert_files("kv.safetensors", "m.gguf", "t.txt")

    def test_frames_of_calibrated_chains(self):
        """Every command that encodes or decodes takes the artefact, and shows that it is in force
        (case A11)."""
        self.calibrate()
        frames = self.folder / "x.kvs"
        for profile, calibrated in (("affine:source=calibrated|uniform|rans", {"affine"}),
                                    ("uniform|rans:tables=calibrated", {"rans"})):
            with self.subTest(profile):
                self.succeed_json("encode", "--profile", profile, "--calib", self.calib, self.kv,
                                  "-o", frames)
                document = self.succeed_json("inspect", frames)["frames"][0]
                self.assertEqual({stage["name"] for stage in document["stages"]
                                  if stage["scale_source"]["k"] == "calibrated"}, calibrated)
                self.assertIn("calibrated", self.succeed("inspect", frames))
                checksum = self.succeed_json("inspect", self.calib)["calibration"]["checksum"]
                self.assertEqual(document["artefact"], checksum)
                compared = self.succeed_json("compare", self.kv, frames, "--calib", self.calib)
                self.assertGreater(compared["layers"][1]["k"]["snr_db"], 10)
                self.refuse(3, "compare", self.kv, frames, says="x.kvs: frame 0")
                rows = self.succeed_json(
                    "bench", "codec", "--seconds", "0.001", "--memcpy-bytes", "1048576",
                    "--threads", "1", "--data", self.kv, "--profile", profile, "--frame-tokens",
                    "all", "--calib", self.calib)["rows"]
                self.assertEqual(rows[1]["name"], profile)
                self.refuse(2, "bench", "codec", "--profile", profile,
                            says="needs a calibration artefact")

    def test_an_artefact_of_another_dtype_is_refused(self):
        """Also when neither file names its model."""
        kv_sample.write_random(self.kv, tokens=40, dtype="F16")
        self.calibrate()
        other = self.folder / "other.safetensors"
        kv_sample.write_random(other, tokens=40, dtype="BF16")
        for profile in ("affine:source=calibrated|uniform|rans", "lossless|rans:tables=calibrated"):
            line = self.refuse(3, "encode", "--profile", profile, "--calib", self.calib, other,
                               "-o", "x.kvs", says="float16 cache where this one is bfloat16")
            self.assertIn("other.safetensors: ", line)
            self.succeed("encode", "--profile", profile, "--calib", self.calib, self.kv, "-o",
                         "x.kvs")

    def test_help(self):
        text = self.succeed("calibrate", "--help")
        self.check_golden("help-calibrate.txt", text)
        self.assertIn("\nExamples:\n  kvserve calibrate", text)

    def test_same_data_gives_the_same_file(self):
        self.calibrate("--tokens", "30")
        first = self.calib.read_bytes()
        self.calibrate("--tokens", "30")
        self.assertEqual(first, self.calib.read_bytes())
        self.calibrate("--tokens", "31")
        self.assertNotEqual(first, self.calib.read_bytes())

    def test_damage_is_told(self):
        self.calibrate()
        good = self.calib.read_bytes()
        self.calib.write_bytes(good[:-1])
        self.refuse(4, "inspect", self.calib, says="m.calib: calibration artefact: ")
        self.calib.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
        self.refuse(4, "inspect", self.calib, says="checksum")
        self.calib.write_bytes(good[:4] + b"\x09\x00" + good[6:])
        self.refuse(3, "inspect", self.calib, says="version 9")

    def test_wrong_usage(self):
        text = self.folder / "a.txt"
        text.write_text("Some words.")
        output = ("-o", self.calib)
        self.refuse(2, "calibrate", *output)
        self.refuse(2, "calibrate", "--data", self.kv)
        self.refuse(2, "calibrate", "--data", text, *output, says="texts in --data need --model")
        self.refuse(2, "calibrate", "--data", self.kv, "--tokens", "1", *output, says="--tokens")
        self.refuse(2, "calibrate", "--data", self.kv, "--frame-tokens", "0", *output)
        self.refuse(2, "calibrate", "--data", self.kv, "--profile", "banana", *output,
                    says="banana")
        self.refuse(3, "calibrate", "--data", "missing.safetensors", *output,
                    says="missing.safetensors")
        self.refuse(3, "calibrate", "--data", "missing.jsonl", *output, says="missing.jsonl")
        other = self.folder / "other.safetensors"
        kv_sample.write_random(other, tokens=40, layers=1)
        self.refuse(3, "calibrate", "--data", self.kv, other, *output, says="other.safetensors")
        kv_sample.write_random(other, tokens=40, metadata={"kvserve.model": MODEL[::-1]})
        self.refuse(3, "calibrate", "--data", self.kv, other, *output, says=MODEL[::-1])
        kv_sample.write_random(self.kv, tokens=1)
        self.refuse(3, "calibrate", "--data", self.kv, *output, says="two tokens")
        self.assert_files("kv.safetensors", "a.txt", "other.safetensors")
