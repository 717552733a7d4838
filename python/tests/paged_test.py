"""Gather and scatter against indexing by numpy, for every layout."""

import unittest

import numpy

import kvserve
import kv

BLOCKS, SLOTS, HEADS, DIM, LAYERS = 6, 16, 3, 8, 2
TABLE = [4, 2, 0]  # blocks of one request


def shape_of(layout):
    return {"nhd": (2, BLOCKS, SLOTS, HEADS, DIM), "hnd": (2, BLOCKS, HEADS, SLOTS, DIM),
            "vllm_cpu": (BLOCKS, HEADS, SLOTS, 2 * DIM)}[layout]


def token_of(layer, layout, token, table=TABLE):
    """K and V [head, dim] of a token, by the words of the documentation."""
    block, slot = table[token // SLOTS], token % SLOTS
    if layout == "nhd":
        return layer[0, block, slot], layer[1, block, slot]
    if layout == "hnd":
        return layer[0, block, :, slot], layer[1, block, :, slot]
    flat = layer[block].reshape(HEADS, 2, SLOTS * DIM)
    return (flat[:, 0].reshape(HEADS, DIM, SLOTS)[:, :, slot],
            flat[:, 1].reshape(HEADS, SLOTS, DIM)[:, slot])


class Layouts(unittest.TestCase):
    def layers(self, layout, dtype="bfloat16"):
        return [kv.random_bits(shape_of(layout), dtype, seed) for seed in range(LAYERS)]

    def test_gather(self):
        for layout in ("nhd", "hnd", "vllm_cpu"):
            for dtype in ("bfloat16", "float8_e4m3fn", "float32"):
                with self.subTest(layout=layout, dtype=dtype):
                    layers = self.layers(layout, dtype)
                    cache = kvserve.PagedCache(layers, layout, dtype=dtype)
                    self.assertEqual((cache.blocks, cache.block_tokens), (BLOCKS, SLOTS))
                    chunk = cache.gather(TABLE, (3, 40))
                    self.assertEqual((chunk.tokens, chunk.geometry), ((3, 40), cache.geometry))
                    for layer, gathered in zip(layers, chunk.numpy()):
                        for token in range(3, 40):
                            k, v = token_of(layer, layout, token)
                            self.assertTrue(kv.same_bits(k, gathered.k[token - 3]))
                            self.assertTrue(kv.same_bits(v, gathered.v[token - 3]))

    def test_scatter_touches_its_tokens_alone(self):
        for layout in ("nhd", "hnd", "vllm_cpu"):
            with self.subTest(layout=layout):
                source = kvserve.PagedCache(self.layers(layout), layout, dtype="bfloat16")
                chunk = source.gather(TABLE, (0, 48))
                target = [numpy.zeros(shape_of(layout), "u2") for _ in range(LAYERS)]
                cache = kvserve.PagedCache(target, layout, dtype="bfloat16")
                cache.scatter(chunk, [[1, 3, 5]], (10, 35))
                for layer, expected in zip(target, chunk.numpy()):
                    written = 0
                    for token in range(48):
                        k, v = token_of(layer, layout, token, [1, 3, 5])
                        inside = 10 <= token < 35
                        self.assertTrue(kv.same_bits(k, expected.k[token] * inside))
                        self.assertTrue(kv.same_bits(v, expected.v[token] * inside))
                        written += numpy.count_nonzero(k) + numpy.count_nonzero(v)
                    self.assertEqual(written, numpy.count_nonzero(layer))

    def test_pairs_of_any_strides(self):
        layers = self.layers("nhd")
        pairs = [(layer[0], layer[1].transpose(1, 0, 2, 3).copy().transpose(1, 0, 2, 3))
                 for layer in layers]
        a = kvserve.PagedCache(layers, dtype="bfloat16").gather(TABLE, (0, 48))
        b = kvserve.PagedCache(pairs, dtype="bfloat16").gather(TABLE, (0, 48))
        for x, y in zip(a.numpy(), b.numpy()):
            self.assertTrue(kv.same_bits(x.k, y.k) and kv.same_bits(x.v, y.v))

    def test_planes_by_address(self):
        layers = self.layers("nhd")
        named = kvserve.PagedCache(layers, dtype="bfloat16")
        planes = []
        for layer in layers:
            address = layer.__array_interface__["data"][0]
            strides = (SLOTS * HEADS * DIM, HEADS * DIM, DIM, 1)
            planes.append((kvserve.PagedPlane(address, *strides),
                           kvserve.PagedPlane(address + layer[0].nbytes, *strides)))
        cache = kvserve.PagedCache.from_planes(named.geometry, SLOTS, BLOCKS, planes, owner=layers)
        for x, y in zip(cache.gather(TABLE, (0, 9)).numpy(), named.gather(TABLE, (0, 9)).numpy()):
            self.assertTrue(kv.same_bits(x.k, y.k) and kv.same_bits(x.v, y.v))


class Requests(unittest.TestCase):
    def cache(self, **options):
        return kvserve.PagedCache([numpy.zeros((2, BLOCKS, SLOTS, HEADS, DIM), "f4")
                                   for _ in range(LAYERS)], **options)

    def test_frames_go_from_cache_to_cache(self):
        layers = [kv.random_bits(shape_of("hnd"), "bfloat16", seed) for seed in range(LAYERS)]
        prefill = kvserve.PagedCache(layers, "hnd", dtype="bfloat16")
        frame = kvserve.encode(prefill.gather(TABLE, (0, 40)), "lossless")
        decode = kvserve.PagedCache([numpy.zeros(shape_of("vllm_cpu"), "u2")
                                     for _ in range(LAYERS)], "vllm_cpu", dtype="bfloat16")
        decode.scatter(kvserve.decode(frame), [5, 0, 1])
        for a, b in zip(prefill.gather(TABLE, (0, 40)).numpy(),
                        decode.gather([5, 0, 1], (0, 40)).numpy()):
            self.assertTrue(kv.same_bits(a.k, b.k) and kv.same_bits(a.v, b.v))

    def test_gather_into_and_scatter_from_tensors(self):
        cache = self.cache()
        source = kv.gaussian_kv(tokens=20, heads=HEADS, dim=DIM, layers=LAYERS)
        cache.scatter(source, TABLE, (7, 27))
        out = [tuple(numpy.zeros_like(x) for x in pair) for pair in source]
        cache.gather_into(TABLE, (10, 20), kvserve.view(out, tokens=(7, 27), writable=True))
        for (k, v), (a, b) in zip(source, out):
            self.assertTrue(kv.same_bits(k[3:13], a[3:13]) and kv.same_bits(v[3:13], b[3:13]))
            self.assertEqual(numpy.count_nonzero(a[:3]) + numpy.count_nonzero(a[13:]), 0)

    def test_groups_and_windows(self):
        cache = self.cache(groups=[0, 1], window_tokens=[0, 8])
        tables = [TABLE, [kvserve.NO_BLOCK, 1, 3]]
        chunk = cache.gather(tables, (0, 40))
        self.assertEqual([layer.tokens for layer in chunk.numpy()], [(0, 40), (32, 40)])
        self.assertEqual([layer.tokens for layer in
                          cache.gather(tables, (16, 32), total_tokens=36).numpy()],
                         [(16, 32), (28, 32)])
        with self.assertRaisesRegex(kvserve.InvalidArgumentError, "layer 1"):
            cache.gather(tables, (0, 20))

    def test_some_layers(self):
        chunk = self.cache().gather(TABLE, (0, 5), layers=[1])
        self.assertEqual([layer.layer for layer in chunk.numpy()], [1])

    def test_refusals(self):
        wrong = kvserve.InvalidArgumentError
        cache = self.cache()
        with self.assertRaisesRegex(wrong, "layout 'odd'"):
            self.cache(layout="odd")
        with self.assertRaisesRegex(wrong, "a table of 1"):
            cache.gather([0], (0, 20))
        with self.assertRaisesRegex(wrong, "is 6 of a cache of 6"):
            cache.gather([0, 6], (0, 20))
        with self.assertRaises(wrong):
            cache.gather([], (0, 20))
        with self.assertRaises(wrong):
            cache.gather(TABLE, (20, 10))
        with self.assertRaisesRegex(wrong, "layer 7"):
            cache.gather(TABLE, (0, 10), layers=[7])
        with self.assertRaisesRegex(wrong, "read-only"):
            cache.gather_into(TABLE, (0, 4), kvserve.view(
                kv.gaussian_kv(tokens=4, heads=HEADS, dim=DIM, layers=LAYERS)))
        with self.assertRaises(wrong):
            cache.scatter(kv.gaussian_kv(tokens=4, heads=HEADS, dim=DIM + 1, layers=LAYERS), TABLE)
        with self.assertRaisesRegex(wrong, "do not fit"):
            self.cache(geometry=kvserve.Geometry("float32", [kvserve.Layer(1, 8, 8)] * LAYERS))
        frozen = numpy.zeros((2, 4, 4, 1, 8), "f4")
        frozen.flags.writeable = False
        with self.assertRaisesRegex(wrong, "read-only"):
            kvserve.PagedCache([frozen])


if __name__ == "__main__":
    unittest.main()
