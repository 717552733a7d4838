"""Decodes the pinned frames of tests/golden and tests/compat, and refuses damaged ones."""

import struct
import unittest
from pathlib import Path

import xxhash

import hadamard
from byte_reader import Corrupt, Unsupported
from calibration import read_artefact
from chain import decode_planes
from frame import SIDE, SYMBOLS
from kvs_decode import describe, read_frames
from symbol_codecs import block_of

TESTS = Path(__file__).resolve().parents[2] / "tests"
GOLDEN = TESTS / "golden" / "frames"
DIGESTS = [TESTS / "golden" / "decoded.txt", *sorted((TESTS / "compat").glob("v*/decoded.txt"))]


def decode(data: bytes, artefacts: list | None = None) -> list:
    return [decode_planes(frame, artefacts or []) for frame in read_frames(data)]


def artefacts_of(folder: Path) -> list:
    return [read_artefact(path.read_bytes()) for path in sorted(folder.glob("*.calib"))]


def digest(planes: list) -> str:
    """Of layers, token ranges and elements, as decoded.txt holds it."""
    hashed = xxhash.xxh3_64()
    for plane, bits in planes:
        if not plane.is_v:
            hashed.update(struct.pack("<III", plane.layer, plane.first_token,
                                      plane.first_token + plane.tokens))
        hashed.update(bits.tobytes())
    return hashed.hexdigest()


def sealed(data: bytes) -> bytes:
    """With the header's checksum made right."""
    (header_bytes,) = struct.unpack_from("<I", data, 6)
    header = data[:26] + bytes(8) + data[34:header_bytes]
    return header[:26] + checksum(header) + header[34:] + data[header_bytes:]


def with_byte(data: bytes, kind: int, at: int, value: int) -> bytes:
    """A section with another byte at `at`, and all checksums made right."""
    (frame,) = read_frames(data)
    before = frame.sections[kind]
    after = bytearray(before)
    after[at] = value
    for old, new in ((before, bytes(after)),
                     (checksum(before, kind), checksum(bytes(after), kind))):
        assert data.count(old) == 1
        data = data.replace(old, new)
    return sealed(data)


def checksum(data: bytes, seed: int = 0) -> bytes:
    return struct.pack("<Q", xxhash.xxh3_64_intdigest(data, seed=seed))


class PinnedFrames(unittest.TestCase):
    def test_values_are_those_recorded(self):
        for digests in DIGESTS:
            folder = GOLDEN if digests.parent.name == "golden" else digests.parent
            artefacts = artefacts_of(digests.parent / "artefacts" if folder == GOLDEN else folder)
            lines = digests.read_text().split()
            recorded = dict(zip(lines[::2], lines[1::2]))
            self.assertEqual(set(recorded), {path.stem for path in folder.glob("*.kvs")})
            for name, expected in recorded.items():
                with self.subTest(name, folder=folder.name):
                    (planes,) = decode((folder / f"{name}.kvs").read_bytes(), artefacts)
                    self.assertEqual(digest(planes), expected)

    def test_key_names_the_tokens(self):
        for path in GOLDEN.glob("*.kvs"):
            with self.subTest(path.stem):
                (frame,) = read_frames(path.read_bytes())
                tokens = range(frame.first_token + frame.token_count)
                ids = struct.pack(f"<{len(tokens)}i", *(i * 7 % 1000 for i in tokens))
                seed = xxhash.xxh3_64_intdigest(frame.model)
                self.assertEqual(frame.key, xxhash.xxh3_128_digest(ids, seed=seed))
                self.assertIn(frame.key.hex(), describe(frame))

    def test_a_file_holds_frames_back_to_back(self):
        one = (GOLDEN / "lossless-token-bf16.kvs").read_bytes()
        two = (GOLDEN / "none-window-bf16.kvs").read_bytes()
        self.assertEqual([digest(planes) for planes in decode(one + two)],
                         [digest(decode(one)[0]), digest(decode(two)[0])])
        with self.assertRaises(Corrupt):
            decode(one + b"\0")
        with self.assertRaises(Corrupt):
            decode(b"")


class NumbersOfTheDocument(unittest.TestCase):
    def test_sign_words(self):
        self.assertEqual(hadamard.sign_word(0x3333, 7, True, 0, 0), 0x944036C5797322F9)
        self.assertEqual(hadamard.sign_word(0x3333, 7, True, 1, 0), 0xF82088A8417C0015)

    def test_bitpack_blocks(self):
        blocks = {2: (8, 1), 3: (5, 1), 4: (4, 1), 5: (24, 7), 6: (3, 1), 8: (8, 3), 16: (2, 1),
                  17: (13, 7), 256: (1, 1)}
        self.assertEqual({alphabet: block_of(alphabet) for alphabet in blocks}, blocks)


class DamagedFrames(unittest.TestCase):
    def test_every_changed_byte_is_noticed(self):
        for name in ("hadamard-bitpack-window-f16", "uniform-zstd-latent-f32"):
            good = (GOLDEN / f"{name}.kvs").read_bytes()
            for at in range(len(good)):
                with self.subTest(name, at=at), self.assertRaises((Corrupt, Unsupported)):
                    decode(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1:])

    def test_every_cut_is_noticed(self):
        good = (GOLDEN / "lossless-token-bf16.kvs").read_bytes()
        for length in range(len(good)):
            with self.subTest(length=length), self.assertRaises(Corrupt):
                decode(good[:length])

    def test_another_version_or_feature_is_told_as_such(self):
        good = (GOLDEN / "none-token-f32.kvs").read_bytes()
        for at in (4, 10, 17):  # version, lowest and highest feature bits
            with self.subTest(at=at), self.assertRaises(Unsupported):
                decode(good[:at] + b"\x80" + good[at + 1:])

    def test_header_fields_are_checked_behind_a_right_checksum(self):
        """Every header byte changed and sealed again: refused, or one of the free fields."""
        good = (GOLDEN / "none-token-f32.kvs").read_bytes()
        # model_layers, prompt_tokens, model, key, window, theta: no value depends on them
        free = {36, 39, *range(40, 72), 76, *range(78, 82)}
        for at in set(range(34, 108)) - free:
            with self.subTest(at=at), self.assertRaises((Corrupt, Unsupported)):
                decode(sealed(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1:]))

    def test_sections_are_checked_behind_right_checksums(self):
        artefacts = artefacts_of(GOLDEN.parent / "artefacts")
        for what, name, kind, at, value in (
                ("rans mode", "hadamard-rans-long-bf16", SYMBOLS, 0, 19),
                ("rans table that was not sent", "hadamard-rans-long-bf16", SYMBOLS, 0, 3),
                ("rans state at the end", "hadamard-rans-long-bf16", SYMBOLS, -1, 0x5A),
                ("contexts point", "contexts-roped-f16", SYMBOLS, 0, 2),
                ("contexts mode", "contexts-roped-f16", SYMBOLS, 1, 3),
                ("contexts shift", "contexts-roped-f16", SYMBOLS, 2, 120),
                ("contexts word", "contexts-roped-f16", SYMBOLS, -1, 0x5A),
                ("digits of a block", "uniform-bitpack-latent-f32", SYMBOLS, -1, 255),
                ("lz4 form", "lz4-latent-f16", SYMBOLS, 0, 2),
                ("length of an lz4 piece", "lz4-uniform-plain-f16", SYMBOLS, 1, 0),
                ("last token of an lz4 block", "lz4-uniform-plain-f16", SYMBOLS, -1, 0xEE),
                ("zstd form", "uniform-zstd-latent-f32", SYMBOLS, 0, 2),
                ("side length", "lossless-token-bf16", SIDE, 0, 1),
                ("lossless form", "lossless-token-bf16", SIDE, 2, 2),
                ("raw form", "uniform-none-token-f16", SIDE, 2, 2)):
            with self.subTest(what), self.assertRaises(Corrupt):
                decode(with_byte((GOLDEN / f"{name}.kvs").read_bytes(), kind, at, value), artefacts)

    def test_an_artefact_that_no_stage_needs_is_refused(self):
        good = (GOLDEN / "none-token-f32.kvs").read_bytes()
        lengths = struct.pack("<IQQ", 108 + 16, 0, len(good) + 16)
        needing = good[:6] + lengths + good[26:34] + b"\1" + good[35:72] + b"a" * 16 + good[72:]
        with self.assertRaises(Corrupt):
            decode(sealed(needing))


if __name__ == "__main__":
    unittest.main()
