"""Frames of numpy arrays: every dtype, strides, windows, fingerprints, the command's bytes."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy

import kvserve
import kv

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "cli"))
import kv_sample  # noqa: E402

LOSSY = "hadamard|uniform:k_levels=64,v_levels=64|rans"


class RoundTrip(unittest.TestCase):
    def check_bits(self, tensors, chunk):
        for (k, v), layer in zip(tensors, chunk.numpy(), strict=True):
            self.assertTrue(kv.same_bits(k, layer.k))
            self.assertTrue(kv.same_bits(v, layer.v))

    def test_every_dtype_bit_for_bit(self):
        for dtype in kvserve.DTYPE_BYTES:
            tensors = kv.random_kv(dtype)
            for profile in ("none", "lossless"):
                with self.subTest(dtype=dtype, profile=profile):
                    if dtype == "uint8" and profile == "lossless":
                        continue
                    chunk = kvserve.decode(kvserve.encode(tensors, profile, dtype=dtype))
                    self.assertEqual(chunk.geometry.dtype, dtype)
                    self.check_bits(tensors, chunk)

    def test_every_float_within_a_step(self):
        source = kv.gaussian_kv(tokens=64)
        for dtype, convert in (("float32", lambda x: x), ("float16", lambda x: x.astype("f2")),
                               ("bfloat16", kv.to_bfloat16)):
            with self.subTest(dtype=dtype):
                tensors = [(convert(k), convert(v)) for k, v in source]
                frame = kvserve.encode(tensors, LOSSY, dtype=dtype)
                self.assertLess(len(frame), frame.raw_bytes)
                for (k, _), layer in zip(source, kvserve.decode(frame).numpy()):
                    back = layer.k
                    if dtype == "bfloat16":
                        back = (back.astype(numpy.uint32) << 16).view(numpy.float32)
                    self.assertLess(numpy.abs(back.astype("f4") - k).max(), 0.3)

    def test_frames_of_a_request(self):
        tensors = kv.gaussian_kv(tokens=64)
        encoder = kvserve.Encoder("window|mixed|rans")
        request = encoder.new_request()
        self.assertIsInstance(request, kvserve.Request)
        alone = encoder.encode(tensors, dtype="float32")
        self.assertEqual(encoder.fallback_reason, "")
        self.assertEqual(bytes(encoder.encode(tensors, dtype="float32", request=request)),
                         bytes(alone))
        with self.assertRaises(kvserve.InvalidArgumentError):
            kvserve.Encoder("none").encode(tensors, dtype="float32", request=request)

    def test_the_decoder_says_which_tokens_are_left_out(self):
        profile = "window:sinks=4,recent=16,outside=0|mixed|rans"
        self.assertEqual(kvserve.Profile(profile).may_drop, "window")
        self.assertEqual(kvserve.Profile(LOSSY).may_drop, "")
        decoder = kvserve.Decoder()
        layer = decoder.decode(kvserve.encode(kv.gaussian_kv(tokens=64), profile,
                                              dtype="float32")).numpy()[0]
        self.assertEqual(decoder.dropped, [4 <= token < 48 for token in range(64)])
        self.assertFalse(decoder.partly_dropped)
        self.assertFalse(layer.k[4:48].any())
        decoder.decode(kvserve.encode(kv.gaussian_kv(tokens=64), LOSSY, dtype="float32"))
        self.assertEqual(decoder.dropped, [])

    def test_own_dtypes_need_no_dtype(self):
        for dtype in (numpy.float16, numpy.float32, numpy.uint8):
            tensors = [(numpy.ones((4, 1, 8), dtype), numpy.zeros((4, 1, 8), dtype))]
            self.check_bits(tensors, kvserve.decode(kvserve.encode(tensors, "none")))

    def test_strides_change_no_byte(self):
        plain = kv.random_kv("bfloat16")
        strided = []
        for k, v in plain:
            room = numpy.zeros((v.shape[0], 3, v.shape[1], v.shape[2]), v.dtype)
            room[:, 1] = v
            strided.append((k.transpose(1, 2, 0).copy().transpose(2, 0, 1), room[:, 1]))
        reverse = [(k[::-1].copy()[::-1], v) for k, v in plain]
        for profile in ("none", "lossless"):
            expected = bytes(kvserve.encode(plain, profile, dtype="bfloat16"))
            self.assertEqual(bytes(kvserve.encode(strided, profile, dtype="bfloat16")), expected)
            self.assertEqual(bytes(kvserve.encode(reverse, profile, dtype="bfloat16")), expected)

    def test_threads_change_no_byte(self):
        tensors = kv.gaussian_kv()
        self.assertEqual(bytes(kvserve.encode(tensors, LOSSY, threads=3)),
                         bytes(kvserve.encode(tensors, LOSSY)))

    def test_into_tensors_of_any_strides(self):
        tensors = kv.random_kv("float16")
        frame = kvserve.encode(tensors, "lossless", dtype="float16")
        decoder = kvserve.Decoder()
        out = [(numpy.zeros((16, 33, 2), "u2").transpose(1, 2, 0), numpy.zeros((33, 2, 16), "u2"))
               for _ in tensors]
        decoder.decode_into(frame, out)
        for (k, v), (a, b) in zip(tensors, out):
            self.assertTrue(kv.same_bits(k, a) and kv.same_bits(v, b))
        out = [(numpy.zeros_like(k), numpy.zeros_like(v)) for k, v in tensors]
        decoder.decode_into(frame, kvserve.view(out, dtype="float16", writable=True))
        for (k, v), (a, b) in zip(tensors, out):
            self.assertTrue(kv.same_bits(k, a) and kv.same_bits(v, b))

    def test_single_planes_and_windows(self):
        geometry = kvserve.Geometry("float32", [
            kvserve.Layer(1, 24, 0), kvserve.Layer(2, 8, 4, window_tokens=5)])
        latent = numpy.random.default_rng(1).standard_normal((10, 1, 24), numpy.float32)
        window = (latent[5:, :, :16].reshape(5, 2, 8), latent[5:, :, :8].reshape(5, 2, 4))
        frame = kvserve.encode([(latent, None), window], "none", geometry=geometry,
                               tokens=(90, 100))
        chunk = kvserve.decode(frame)
        self.assertEqual(chunk.geometry, geometry)
        self.assertEqual(chunk.tokens, (90, 100))
        first, second = chunk.numpy()
        self.assertIsNone(first.v)
        self.assertEqual((first.tokens, second.tokens), ((90, 100), (95, 100)))
        self.assertTrue(kv.same_bits(second.v, window[1]))

    def test_some_layers_of_a_model(self):
        tensors = kv.random_kv("float16", layers=4)
        geometry = kvserve.decode(kvserve.encode(tensors, "none", dtype="float16")).geometry
        chunk = kvserve.decode(kvserve.encode(tensors[1:3], "none", dtype="float16",
                                              geometry=geometry, layers=[1, 2]))
        self.assertEqual([layer.layer for layer in chunk.numpy()], [1, 2])
        self.check_bits(tensors[1:3], chunk)

    def test_an_encoder_and_a_decoder_are_used_again(self):
        encoder, decoder = kvserve.Encoder(LOSSY), kvserve.Decoder()
        self.assertEqual(encoder.profile, kvserve.Profile(LOSSY))
        for seed in range(3):
            tensors = kv.gaussian_kv(seed=seed, tokens=20 + seed)
            self.assertEqual(bytes(encoder.encode(tensors)), bytes(kvserve.encode(tensors, LOSSY)))
            self.assertEqual(decoder.decode(encoder.encode(tensors)).tokens, (0, 20 + seed))
        self.assertGreater(encoder.stage_seconds["rans"], 0)
        self.assertGreater(decoder.stage_seconds["rans"], 0)
        self.assertEqual((decoder.dropped, decoder.partly_dropped), ([], False))

    def test_a_chunk_is_encoded_again(self):
        chunk = kvserve.decode(kvserve.encode(kv.gaussian_kv(), LOSSY))
        again = kvserve.decode(kvserve.encode(chunk, "lossless"))
        for a, b in zip(chunk.numpy(), again.numpy()):
            self.assertTrue(kv.same_bits(a.k, b.k) and kv.same_bits(a.v, b.v))


class Identity(unittest.TestCase):
    def test_prefix_keys(self):
        model = bytes(range(16))
        key = kvserve.prefix_key(model, [1, 2, 3])
        self.assertEqual(len(key), 16)
        self.assertNotEqual(key, kvserve.prefix_key(model, [1, 2]))
        self.assertNotEqual(key, kvserve.prefix_key(bytes(16), [1, 2, 3]))

    def test_frames_of_others_are_refused(self):
        model, key = bytes(range(16)), bytes(range(1, 17))
        frame = kvserve.encode(kv.gaussian_kv(), "none", model=model, key=key)
        kvserve.decode(frame, model=model, key=key)
        kvserve.decode(frame)
        for other in ({"model": key}, {"key": model}):
            with self.assertRaises(kvserve.MismatchError):
                kvserve.decode(frame, **other)


class Command(unittest.TestCase):
    """The frames of `kvserve encode` and those of the package are the same bytes."""

    def run_command(self, *words):
        done = subprocess.run([sys.executable, "-m", "kvserve", *map(str, words)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            source, frames = Path(folder) / "kv.safetensors", Path(folder) / "kv.kvs"
            kv_sample.write_random(source, layers=2, tokens=40)
            tensors, _ = kv_sample.read(source)
            planes = {name: kv.to_bfloat16(numpy.array(values, "f4").reshape(shape))
                      for name, (_, shape, values) in tensors.items()}
            layers = [(planes[f"k.{i}"], planes[f"v.{i}"]) for i in range(2)]
            for profile in ("lossless", "hadamard|uniform:k_levels=16,v_levels=8|rans",
                            "fp8|lz4"):
                with self.subTest(profile=profile):
                    self.run_command("encode", "--profile", profile, source, "-o", frames,
                                     "--frame-tokens", 25)
                    data = frames.read_bytes()
                    chunks = kvserve.Decoder().decode_all(data)
                    self.assertEqual([chunk.tokens for chunk in chunks], [(0, 25), (25, 40)])
                    encoder, ours = kvserve.Encoder(profile), b""
                    for chunk in chunks:
                        rows = slice(*chunk.tokens)
                        ours += encoder.encode([(k[rows], v[rows]) for k, v in layers],
                                               dtype="bfloat16",
                                               tokens=chunk.tokens).__bytes__()
                    self.assertEqual(ours, data)


if __name__ == "__main__":
    unittest.main()
