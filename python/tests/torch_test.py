"""Torch CPU tensors where they are; skipped only where torch is not installed."""

import importlib.util
import unittest

import kvserve

HAVE_TORCH = importlib.util.find_spec("torch") is not None
if HAVE_TORCH:
    import torch


@unittest.skipUnless(HAVE_TORCH, "torch is not installed")
class Tensors(unittest.TestCase):
    def tensor(self, dtype, *shape):
        """Small bits of any dtype; fp8 tensors cannot be made otherwise."""
        size = torch.empty(0, dtype=dtype).element_size()
        bits = torch.randint(0, 64, (*shape[:-1], shape[-1] * size), dtype=torch.uint8)
        return bits.view(dtype)

    def same(self, a, b):
        return a.dtype == b.dtype and torch.equal(a.contiguous().view(torch.uint8),
                                                  b.contiguous().view(torch.uint8))

    def test_every_dtype_keeps_its_bits(self):
        for name in kvserve.DTYPE_BYTES:
            with self.subTest(dtype=name):
                dtype = getattr(torch, name)
                tensors = [(self.tensor(dtype, 40, 3, 16), self.tensor(dtype, 40, 3, 16))
                           for _ in range(2)]
                chunk = kvserve.decode(kvserve.encode(tensors, "none"))
                self.assertEqual(chunk.geometry.dtype, name)
                out = [(torch.empty_like(k), torch.empty_like(v)) for k, v in tensors]
                chunk.copy_to(out)
                for (k, v), layer, (a, b) in zip(tensors, chunk.torch(), out):
                    self.assertTrue(self.same(k, layer.k) and self.same(v, layer.v))
                    self.assertTrue(self.same(k, a) and self.same(v, b))

    def test_strides_change_no_byte(self):
        plain = [(torch.randn(40, 3, 16).bfloat16(), torch.randn(40, 3, 16).bfloat16())]
        strided = [(k.permute(1, 2, 0).contiguous().permute(2, 0, 1),
                    torch.cat([v, v], 2)[:, :, :16]) for k, v in plain]
        self.assertFalse(strided[0][0].is_contiguous() or strided[0][1].is_contiguous())
        for profile in ("lossless", "hadamard|uniform|rans"):
            self.assertEqual(bytes(kvserve.encode(strided, profile)),
                             bytes(kvserve.encode(plain, profile)))

    def test_a_cache_of_one_storage(self):
        """As vLLM has it: layers are views of one storage."""
        storage = torch.randn(3, 6, 2, 16, 32).bfloat16()
        cache = kvserve.PagedCache(list(storage), "vllm_cpu")
        layer = cache.gather([4, 1], (0, 20)).torch()[2]
        flat = storage[2, 1, 1].flatten()
        self.assertTrue(self.same(layer.k[18, 1], flat[:256].view(16, 16)[:, 2]))
        self.assertTrue(self.same(layer.v[18, 1], flat[256:].view(16, 16)[2]))
        chunk = cache.gather([4, 1], (0, 20))
        storage[:, 3], storage[:, 5] = 0, 0
        cache.scatter(chunk, [3, 5])
        self.assertTrue(torch.equal(storage[:, 3], storage[:, 4]))

    def test_gradients_do_not_matter(self):
        k = torch.randn(4, 1, 8, requires_grad=True)
        kvserve.encode([(k, k)], "lossless")

    def test_devices_without_host_memory_are_refused(self):
        k = torch.empty(4, 1, 8, device="meta")
        with self.assertRaisesRegex(kvserve.UnsupportedError, "meta"):
            kvserve.encode([(k, k)], "none")


if __name__ == "__main__":
    unittest.main()
