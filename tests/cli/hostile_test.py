"""Damaged and hostile files: one line, the right exit status, no file left behind."""

import random
import struct

import cli_case
import kv_sample

PROFILES = ["none", "hadamard|uniform|rans", "lossless"]


class HostileTest(cli_case.CliCase):
    def setUp(self):
        super().setUp()
        self.kv = self.folder / "kv.safetensors"
        self.frames = self.folder / "x.kvs"
        self.bad = self.folder / "bad.kvs"

    def encode(self, profile="none", *options, source=None):
        self.succeed("encode", "--profile", profile, *options, source or self.kv, "-o", self.frames)
        return self.frames.read_bytes()

    def frame_bytes(self):
        return [frame["frame_bytes"]
                for frame in self.succeed_json("inspect", self.frames)["frames"]]

    def refuse_frames(self, data, *statuses):
        """decode and inspect refuse `data` alike; returns the document of inspect."""
        self.bad.write_bytes(data)
        before = sorted(p.name for p in self.folder.iterdir())
        done = self.run_tool("decode", self.bad, "-o", "out.safetensors")
        self.assertIn(done.returncode, statuses, done.stderr)
        self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), before)
        looked = self.run_tool("inspect", self.bad, "--json")
        return looked

    def test_truncated(self):
        kv_sample.write_random(self.kv, layers=1, tokens=4, dim=8)
        whole = self.encode(PROFILES[1], "--frame-tokens", "2")
        first = self.frame_bytes()[0]
        for length in [*range(0, first, 9), first - 1, first + 1, len(whole) - 1]:
            with self.subTest(length=length):
                looked = self.refuse_frames(whole[:length], 4)
                self.assertEqual(looked.returncode, 4)

    def test_flipped_bits(self):
        kv_sample.write_random(self.kv, layers=1, tokens=4, dim=8)
        for profile in PROFILES:
            whole = self.encode(profile)
            source = random.Random(7)
            bits = source.sample(range(8 * len(whole)), 40)
            for bit in bits:
                with self.subTest(profile, bit=bit):
                    data = bytearray(whole)
                    data[bit // 8] ^= 1 << bit % 8
                    # 3: a version or feature bit that this build does not know
                    looked = self.refuse_frames(bytes(data), 3, 4)
                    frames = self.parse_json(looked.stdout)["frames"]
                    self.assertFalse(all(frame["checksum_ok"] for frame in frames))
                    self.assertIn(looked.returncode, (3, 4))

    def test_inspect_names_the_damaged_section(self):
        kv_sample.write_random(self.kv, tokens=6)
        whole = bytearray(self.encode("none", "--frame-tokens", "2"))
        sizes = self.frame_bytes()
        whole[sizes[0] + sizes[1] - 1] ^= 1  # last byte of frame 1
        looked = self.refuse_frames(bytes(whole), 4)
        self.assertEqual(looked.returncode, 4)
        self.assertEqual(looked.stderr.count("\n"), 1)
        frames = self.parse_json(looked.stdout)["frames"]
        self.assertEqual([frame["checksum_ok"] for frame in frames], [True, False, True])
        self.assertEqual([s["checksum_ok"] for s in frames[1]["sections"]][-1], False)
        self.assertEqual(frames[1]["geometry"]["tokens"], [2, 4])  # the header is sound
        self.assertIn("symbols", frames[1]["error"])

    def test_frames_out_of_order(self):
        kv_sample.write_random(self.kv, tokens=6)
        whole = self.encode("none", "--frame-tokens", "2")
        a, b, _ = self.frame_bytes()
        one, two, three = whole[:a], whole[a:a + b], whole[a + b:]
        for data in (two + one + three, one + one, one + three, one + two + two):
            self.refuse_frames(data, 4)
        self.refuse_frames(whole + b"\0", 4)
        self.bad.write_bytes(two + three)  # a range that starts later is a file of its own
        self.succeed("decode", self.bad, "-o", "out.safetensors")

    def test_frames_of_two_models(self):
        parts = []
        for digit, begin in (("1", 0), ("2", 3)):
            kv_sample.write_random(self.kv, tokens=3, metadata={
                "kvserve.model": digit * 32, "kvserve.tokens": f"[{begin},{begin + 3}]",
                "kvserve.first_token": f"[{begin},{begin}]"})
            parts.append(self.encode())
        self.refuse_frames(b"".join(parts), 3)
        kv_sample.write_random(self.kv, tokens=3, dim=32, metadata={
            "kvserve.model": "1" * 32, "kvserve.tokens": "[3,6]", "kvserve.first_token": "[3,3]"})
        self.refuse_frames(parts[0] + self.encode(), 3)

    def test_other_magic_version_and_feature(self):
        kv_sample.write_random(self.kv, layers=1, tokens=2, dim=8)
        whole = self.encode()
        self.refuse_frames(b"RIFF" + whole[4:], 4)
        self.refuse_frames(whole[:4] + struct.pack("<H", 2) + whole[6:], 3)
        self.refuse_frames(whole[:10] + struct.pack("<Q", 1 << 63) + whole[18:], 3)
        self.refuse_frames(whole[:18] + struct.pack("<Q", 1 << 63) + whole[26:], 4)

    def refuse_kv(self, status, says):
        before = sorted(p.name for p in self.folder.iterdir())
        self.refuse(status, "encode", "--profile", "none", self.kv, "-o", self.frames, says=says)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), before)

    def test_bad_kv_files(self):
        entry = {"dtype": "BF16", "shape": [1, 1, 4], "data_offsets": [0, 8]}
        data = bytes(8)
        for change, says in (
                ({"shape": [1 << 63, 2, 1]}, "larger than 64 bits"),
                ({"shape": [1, 1, 1 << 63]}, "larger than 64 bits"),
                ({"data_offsets": [0, 1 << 63]}, "not inside"),
                ({"data_offsets": [1 << 63, 0]}, "not inside"),
                ({"shape": [1, 1, 1 << 64]}, "does not have"),
                ({"shape": [1, 4]}, "2 axes"),
                ({"dtype": "I64", "shape": [1, 1, 1]}, "dtype I64 is not one of F16, BF16, F32"),
                ({"dtype": "F8_E8M0", "shape": [1, 1, 8]}, "dtype F8_E8M0 is not one of")):
            with self.subTest(says=says, **change):
                kv_sample.write_header(self.kv, {"k.0": {**entry, **change}}, data)
                self.refuse_kv(3, says)
        kv_sample.write_header(self.kv, {"k.0": entry}, data, length=1 << 63)
        self.refuse_kv(3, "header length 9223372036854775808")
        kv_sample.write_header(self.kv, {"k.0": entry}, data[:-1])
        self.refuse_kv(3, "not inside")
        kv_sample.write(self.kv, {"k.0": ((3, 2, 0), [])})
        self.refuse_kv(3, "dim 0 is outside 1..65536")
        kv_sample.write(self.kv, {"k.0": ((0, 2, 4), []), "v.0": ((0, 2, 4), [])})
        self.refuse_kv(3, "holds no tokens")
        self.kv.write_bytes(b"")
        self.refuse_kv(3, "too few")

    def test_paths(self):
        kv_sample.write_random(self.kv, layers=1, tokens=2, dim=8)
        self.refuse(3, "encode", "--profile", "none", "missing", "-o", "x", says="missing")
        self.refuse(3, "encode", "--profile", "none", self.folder, "-o", "x", says="regular file")
        self.refuse(2, "encode", "--profile", "none", self.kv, "-o", "no/such/x.kvs", says="no/such")
        self.refuse(2, "encode", "--profile", "none", self.kv, "-o", self.folder, says="regular file")
        self.refuse(2, "encode", "--profile", "none", self.kv, "-o", "/dev/null", says="/dev/null")
        self.refuse(2, "encode", "--profile", "none", self.kv, "-o", "", says="empty")
        for command in (["decode", "missing", "-o", "x"], ["inspect", "missing"],
                        ["compare", "missing", self.kv], ["compare", self.kv, "missing"]):
            self.refuse(3, *command, says="missing")
        self.refuse(4, "decode", self.kv, "-o", "x", says="magic")

    def test_not_finite_values(self):
        for value in (float("nan"), float("inf")):
            kv_sample.write(self.kv, {f"{p}.0": ((2, 1, 64), [value] + [1.0] * 127) for p in "kv"})
            self.encode("lossless")
            done = self.run_tool("encode", "--profile", PROFILES[1], self.kv, "-o", "y.kvs")
            self.assertEqual(done.returncode, 3, done.stderr)

    def test_equal_and_huge_channels(self):
        for rest in (0.0, 1.0, 1e28):
            kv_sample.write(self.kv, {f"{p}.0": ((4, 1, 64), [-1e28, *[rest] * 255])
                                      for p in "kv"})
            with self.subTest(rest=rest):
                for profile in PROFILES:
                    self.encode(profile)
                    self.succeed("decode", self.frames, "-o", "out.safetensors")

    def test_values_that_overflow_a_transform(self):
        """The sum of 64 such values is infinite: refused, while exact profiles carry them."""
        kv_sample.write(self.kv, {"k.0": ((2, 1, 64), [3e38] * 128)})
        self.encode("lossless")
        self.assertTrue(self.succeed_json("compare", self.kv, self.frames)["bit_exact"])
        self.refuse(3, "encode", "--profile", PROFILES[1], self.kv, "-o", "y.kvs",
                    says="not finite")
