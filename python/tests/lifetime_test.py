"""Who keeps whose memory alive."""

import gc
import subprocess
import sys
import unittest
import weakref

import numpy

import kvserve
import kv


class Lifetime(unittest.TestCase):
    def test_arrays_keep_their_chunk(self):
        tensors = kv.random_kv("bfloat16", tokens=200)
        arrays = kvserve.decode(kvserve.encode(tensors, "none", dtype="bfloat16")).numpy()
        gc.collect()
        fresh = [numpy.full_like(tensors[0][0], 7) for _ in range(50)]
        for (k, v), layer in zip(tensors, arrays):
            self.assertTrue(kv.same_bits(k, layer.k) and kv.same_bits(v, layer.v))
        del fresh

    def test_arrays_of_a_chunk_are_its_memory(self):
        chunk = kvserve.decode(kvserve.encode(kv.gaussian_kv(), "none"))
        chunk.numpy()[1].v[2, 1, 3] = 42
        self.assertEqual(chunk.numpy()[1].v[2, 1, 3], 42)
        again = kvserve.decode(kvserve.encode(chunk, "none"))
        self.assertEqual(again.numpy()[1].v[2, 1, 3], 42)

    def test_a_memoryview_keeps_its_frame(self):
        frame = kvserve.encode(kv.gaussian_kv(), "lossless")
        copy, shown = bytes(frame), memoryview(frame)
        del frame
        gc.collect()
        self.assertEqual(bytes(shown), copy)
        self.assertTrue(shown.readonly)

    def test_views_and_caches_keep_their_tensors(self):
        for keep in (lambda x: kvserve.view([(x, x)]),
                     lambda x: kvserve.PagedCache([(x.reshape(2, 4, 2, 8), None)]),
                     lambda x: kvserve.PagedCache([x.reshape(2, 4, 2, 1, 8)], "hnd")):
            owner = numpy.arange(8 * 2 * 8, dtype="f4").reshape(8, 2, 8).copy()
            reference = weakref.ref(owner)
            kept = keep(owner)
            del owner
            gc.collect()
            self.assertIsNotNone(reference())
            del kept
            gc.collect()
            self.assertIsNone(reference())

    def test_a_buffer_being_decoded_cannot_be_resized(self):
        data = bytearray(kvserve.encode(kv.gaussian_kv(), "none"))
        kvserve.decode(data)
        data.append(0)  # released again

    def test_nothing_is_left_at_exit(self):
        """nanobind tells on stderr of what outlives the interpreter."""
        program = """
import numpy, kvserve
x = numpy.zeros((8, 2, 8), "f4")
kept = [kvserve.view([(x, x)]), kvserve.PagedCache([(x.reshape(2, 4, 2, 8), None)])]
chunk = kvserve.decode(kvserve.encode([(x, x)], "lossless"))
arrays = chunk.numpy()
try: kvserve.Profile("nonsense")
except kvserve.KVServeError: pass
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
