"""What is refused, by which exception, with which code."""

import unittest

import numpy

import kvserve
from kvserve import _errors, _native

import kv


class Errors(unittest.TestCase):
    def test_one_class_per_code_of_the_library(self):
        self.assertEqual({cls.name: code for code, cls in kvserve.ERROR_CLASSES.items()},
                         _native.ERROR_CODES)
        for code, cls in kvserve.ERROR_CLASSES.items():
            error = _errors.error_of(code, "what")
            self.assertIs(type(error), cls)
            self.assertEqual((error.code, str(error)), (code, "what"))
            self.assertIsInstance(error, kvserve.KVServeError)
            self.assertIs(getattr(kvserve, cls.__name__), cls)
        self.assertEqual(_errors.error_of(99, "from a later library").code, 99)

    def refused(self, error, pattern, function, *arguments, **options):
        with self.assertRaisesRegex(error, pattern) as caught:
            function(*arguments, **options)
        self.assertNotIn("\n", str(caught.exception))
        return caught.exception

    def test_wrong_usage(self):
        tensors = kv.gaussian_kv()
        wrong = kvserve.InvalidArgumentError
        self.refused(wrong, "nonsense", kvserve.Profile, "nonsense")
        self.refused(wrong, "threads 0", kvserve.Encoder, "none", threads=0)
        self.refused(wrong, "16 bytes, not 3", kvserve.encode, tensors, "none", model=b"abc")
        self.refused(wrong, "there are no planes", kvserve.encode, [], "none")
        self.refused(wrong, "the dtypes", kvserve.encode,
                     [tensors[0], tuple(x.astype("f2") for x in tensors[1])], "none")
        self.refused(wrong, r"\[33, 16\] is not", kvserve.encode,
                     [(tensors[0][0][:, 0], None)], "none")
        self.refused(wrong, "has 33 tokens", kvserve.encode, tensors, "none", tokens=(0, 8))
        self.refused(wrong, "kv_heads 0", kvserve.Layer, 0, 4, 4)
        self.refused(wrong, "rope_style 'odd'", kvserve.Layer, 1, 4, 4, rope_style="odd")
        self.refused(wrong, "dtype 'float99'", kvserve.Geometry, "float99", [])
        self.refused(wrong, "artefact|calibration", kvserve.Encoder,
                     "uniform|rans:tables=calibrated")
        with self.assertRaises(TypeError):
            kvserve.decode("text")

    def test_dtypes(self):
        bits = kv.random_kv("bfloat16")
        error = self.refused(kvserve.UnsupportedError, "uint16.*dtype='bfloat16'", kvserve.encode,
                             bits, "none")
        self.assertEqual((error.code, error.name), (7, "unsupported"))
        halves = [tuple(x.astype("f2") for x in pair) for pair in kv.gaussian_kv()]
        self.refused(kvserve.InvalidArgumentError, "float16 holds no bfloat16", kvserve.encode,
                     halves, "none", dtype="bfloat16")
        self.refused(kvserve.InvalidArgumentError, "uint16 holds no float32", kvserve.encode, bits,
                     "none", dtype="float32")
        self.refused(kvserve.BadInputError, "byte order", kvserve.encode,
                     [tuple(x.astype(">f4") for x in pair) for pair in kv.gaussian_kv()], "none")
        self.refused(kvserve.BadInputError, "no tensor", kvserve.encode, [(3, 4)], "none")

    def test_values_and_bytes(self):
        tensors = kv.gaussian_kv()
        tensors[1][0][3, 1, 2] = numpy.nan
        self.refused(kvserve.BadInputError, "layer 1 K", kvserve.encode, tensors, "uniform|rans")
        frame = bytearray(kvserve.encode(kv.gaussian_kv(), "lossless"))
        frame[-3] ^= 1
        self.refused(kvserve.CorruptDataError, "checksum", kvserve.decode, frame)
        self.refused(kvserve.CorruptDataError, "", kvserve.decode, b"")
        self.refused(kvserve.ResourceExhaustedError, "", kvserve.decode,
                     kvserve.encode(kv.gaussian_kv(), "none"), max_raw_bytes=100)

    def test_read_only_and_misaligned_memory(self):
        tensors = kv.gaussian_kv()
        frame = kvserve.encode(tensors, "none")
        frozen = [tuple(numpy.zeros_like(x) for x in pair) for pair in tensors]
        frozen[2][1].flags.writeable = False
        self.refused(kvserve.InvalidArgumentError, "read-only", kvserve.Decoder().decode_into,
                     frame, frozen)
        self.refused(kvserve.InvalidArgumentError, "read-only", kvserve.Decoder().decode_into,
                     frame, kvserve.view(frozen))
        odd = numpy.zeros(4 * 16 + 1, "u1")[1:].view("f4").reshape(1, 2, 8)
        self.refused(kvserve.InvalidArgumentError, "aligned", kvserve.encode, [(odd, odd)], "none")

    def test_decoding_into_other_shapes(self):
        frame = kvserve.encode(kv.gaussian_kv(tokens=33), "none")
        self.refused(kvserve.InvalidArgumentError, "", kvserve.Decoder().decode_into, frame,
                     kvserve.view(kv.gaussian_kv(tokens=32), writable=True))


if __name__ == "__main__":
    unittest.main()
