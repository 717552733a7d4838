"""From the blocks of one cache into those of another, over loopback."""

import gc
import time
import unittest
import weakref

import numpy

import kvserve
import kv

HEADS, DIM, LAYERS = 2, 16, 3
TOKENS = list(range(1000, 1100))
MODEL = bytes(range(16))


def wait_for(take, seconds=30.0):
    """The first report; the limit is for a library that hangs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        reports = take()
        if reports:
            return reports[0]
        time.sleep(0.002)
    raise AssertionError("no report came")


def prefill_cache(dtype="bfloat16"):
    """Blocks of 16 tokens, as GPUs have them."""
    return kvserve.PagedCache([kv.random_bits((2, 10, 16, HEADS, DIM), dtype, seed)
                               for seed in range(LAYERS)], "nhd", dtype=dtype)


def decode_cache(dtype="bfloat16"):
    """Blocks of 32 tokens, keys transposed."""
    size = kv.CARRIER.get(dtype, numpy.uint8)
    return kvserve.PagedCache([numpy.zeros((6, HEADS, 32, 2 * DIM), size)
                               for _ in range(LAYERS)], "vllm_cpu", dtype=dtype)


PREFILL_TABLE = [9, 0, 3, 1, 2, 8, 7]
DECODE_TABLE = [5, 1, 0, 3]


class Fallback(unittest.TestCase):
    def test_is_checked_at_the_start_and_counted_in_reports(self):
        with self.assertRaisesRegex(kvserve.InvalidArgumentError, "fallback.*calibration artefact"):
            kvserve.Sender(prefill_cache(), fallback="affine:source=calibrated|uniform|rans")
        sender = kvserve.Sender(prefill_cache(), fallback=kvserve.Profile("published"))
        self.addCleanup(sender.close)
        sender.begin("a", "lossless", TOKENS)
        sender.withdraw("a")
        report = wait_for(sender.take_reports)
        self.assertEqual((report.drift_fallbacks, report.drift_cause, report.drift_reason),
                         (0, "", ""))


class Transfer(unittest.TestCase):
    def setUp(self):
        self.prefill, self.decode = prefill_cache(), decode_cache()
        self.sender = kvserve.Sender(self.prefill, model=MODEL, frame_tokens=48)
        self.receiver = kvserve.Receiver(self.decode, model=MODEL)
        self.addCleanup(self.sender.close)
        self.addCleanup(self.receiver.close)  # first: the sender gives connections time to end

    def fetch(self, ticket, **options):
        arguments = {"tokens": TOKENS, "tables": DECODE_TABLE, **options}
        self.receiver.fetch("r-" + ticket, self.sender.address, ticket, **arguments)
        report = wait_for(self.receiver.take_reports)
        self.assertEqual((report.id, report.ticket), ("r-" + ticket, ticket))
        return report

    def check_tokens(self, begin, end, table=PREFILL_TABLE):
        sent = self.prefill.gather(table, (begin, end))
        taken = self.decode.gather(DECODE_TABLE, (begin, end))
        for a, b in zip(sent.numpy(), taken.numpy()):
            self.assertTrue(kv.same_bits(a.k, b.k) and kv.same_bits(a.v, b.v))

    def test_lossless_keeps_every_bit(self):
        self.sender.begin("a", "lossless", TOKENS)
        self.sender.stage("a", PREFILL_TABLE, (0, 100))
        self.sender.wait_read()
        report = self.fetch("a")
        self.assertIsNone(report.error)
        self.assertEqual((report.tokens, report.profile), (100, "lossless"))
        self.assertEqual(report.raw_bytes, 100 * LAYERS * 2 * HEADS * DIM * 2)
        self.assertGreater(report.frames, 1)
        self.check_tokens(0, 100)
        offer = wait_for(self.sender.take_reports)
        self.assertEqual((offer.ticket, offer.outcome, offer.error), ("a", "delivered", None))
        self.assertEqual(offer.tokens, 100)
        self.assertEqual((self.sender.open_tickets, self.receiver.running), (0, 0))

    def test_layer_by_layer_and_chunk_by_chunk(self):
        self.sender.begin("a", kvserve.Profile("none"), TOKENS, context=b"tenant")
        self.receiver.fetch("early", self.sender.address, "a", TOKENS, DECODE_TABLE,
                            context=b"tenant")
        for tokens in ((0, 37), (37, 100)):
            for layer in range(LAYERS):
                self.sender.stage("a", PREFILL_TABLE, tokens, first_layer=layer, layers=1)
        report = wait_for(self.receiver.take_reports)
        self.assertIsNone(report.error)
        self.check_tokens(0, 100)

    def test_only_what_is_wanted_is_written(self):
        self.sender.begin("a", "lossless", TOKENS)
        self.sender.stage("a", PREFILL_TABLE, (0, 100))
        self.assertIsNone(self.fetch("a", wanted=(64, 100)).error)
        self.check_tokens(64, 100)
        for layer in self.decode.gather(DECODE_TABLE, (0, 64)).numpy():
            self.assertFalse(layer.k.any() or layer.v.any())

    def test_reasons_reach_the_other_side(self):
        self.sender.begin("a", "lossless", TOKENS, context=b"one")
        self.sender.stage("a", PREFILL_TABLE, (0, 100))
        self.assertIsInstance(self.fetch("a", context=b"other").error, kvserve.MismatchError)
        self.sender.begin("b", "lossless", TOKENS)
        self.sender.withdraw("b", kvserve.ResourceExhaustedError("no room"))
        offer = wait_for(lambda: [r for r in self.sender.take_reports() if r.ticket == "b"])
        self.assertEqual(offer.outcome, "withdrawn")
        self.assertIsInstance(offer.error, kvserve.ResourceExhaustedError)

    def test_a_cancelled_fetch_says_so(self):
        self.sender.begin("a", "none", TOKENS)  # nothing is ever staged
        self.receiver.fetch("r", self.sender.address, "a", TOKENS, DECODE_TABLE)
        self.receiver.cancel("r")
        self.assertIsInstance(wait_for(self.receiver.take_reports).error, kvserve.CancelledError)

    def test_wrong_usage(self):
        wrong = kvserve.InvalidArgumentError
        with self.assertRaises(wrong):
            self.sender.begin("a", "nonsense", TOKENS)
        with self.assertRaises(wrong):
            self.sender.stage("never begun", PREFILL_TABLE, (0, 100))
        with self.assertRaises(wrong):
            self.receiver.fetch("r", "no port", "a", TOKENS, DECODE_TABLE)
        with self.assertRaises(wrong):
            self.receiver.fetch("r", self.sender.address, "a", TOKENS, [0])

    def test_an_ended_one_refuses_calls(self):
        with kvserve.Sender(self.prefill) as sender:
            self.assertRegex(sender.address, r"^127\.0\.0\.1:\d+$")
        with self.assertRaisesRegex(kvserve.InvalidArgumentError, "closed"):
            sender.begin("a", "none", TOKENS)
        sender.close()


class Lifetime(unittest.TestCase):
    def test_tensors_outlive_a_sender(self):
        tensor = numpy.zeros((2, 4, 16, 1, 8), "f4").copy()
        reference = weakref.ref(tensor)
        sender = kvserve.Sender(kvserve.PagedCache([tensor]))
        del tensor
        gc.collect()
        self.assertIsNotNone(reference())
        del sender
        gc.collect()
        self.assertIsNone(reference())


if __name__ == "__main__":
    unittest.main()
