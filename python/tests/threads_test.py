"""The interpreter is free while the library works; Python threads share and do not disturb."""

import contextlib
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import numpy

import kvserve
import kv

PROFILE = "hadamard|uniform|rans"


class Counter:
    """Counts in a thread of its own; with `patient_switching` it only gets a turn when somebody
    gives the interpreter away, and gives it back by itself."""

    def __enter__(self):
        self.count, self.stopped = 0, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def run(self):
        while not self.stopped:
            self.count += 1
            if self.count % 64 == 0:
                time.sleep(1e-4)

    def __exit__(self, *_):
        self.stopped = True
        self.thread.join()


@contextlib.contextmanager
def patient_switching():
    """No thread loses the interpreter against its will."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Interpreter(unittest.TestCase):
    """While a call works other Python threads go on. Were the interpreter held, the counter would
    stand still exactly, however slow or loaded the machine is."""

    def moves(self, call):
        with patient_switching(), Counter() as counter:
            for _ in range(200):
                before = counter.count
                call()
                if counter.count > before:
                    return True
        return False

    def setUp(self):
        self.kv = kv.gaussian_kv(tokens=256, heads=4, dim=64, layers=8)
        self.frame = kvserve.encode(self.kv, PROFILE)

    def test_the_measure_notices_a_held_interpreter(self):
        self.assertFalse(self.moves(lambda: sorted(range(20000))))

    def test_encode(self):
        encoder = kvserve.Encoder(PROFILE)
        view = kvserve.view(self.kv)
        self.assertTrue(self.moves(lambda: encoder.encode(view)))

    def test_decode(self):
        decoder = kvserve.Decoder()
        self.assertTrue(self.moves(lambda: decoder.decode(self.frame)))

    def test_decode_into(self):
        decoder = kvserve.Decoder()
        out = kvserve.view([tuple(numpy.zeros_like(x) for x in pair) for pair in self.kv],
                           writable=True)
        self.assertTrue(self.moves(lambda: decoder.decode_into(self.frame, out)))

    def test_gather_and_scatter(self):
        layers = [numpy.zeros((2, 16, 16, 4, 64), "f4") for _ in range(8)]
        cache = kvserve.PagedCache(layers)
        table = list(range(16))
        chunk = cache.gather(table, (0, 256))
        out = kvserve.view(self.kv, writable=True)
        self.assertTrue(self.moves(lambda: cache.gather(table, (0, 256))))
        self.assertTrue(self.moves(lambda: cache.gather_into(table, (0, 256), out)))
        self.assertTrue(self.moves(lambda: cache.scatter(chunk, table)))

    def test_a_sender_and_a_receiver(self):
        layers = [numpy.zeros((2, 16, 16, 4, 64), "f4") for _ in range(8)]
        cache = kvserve.PagedCache(layers)
        sender, receiver = kvserve.Sender(cache), kvserve.Receiver(cache)
        table, tokens, tickets = list(range(16)), list(range(256)), iter(range(1000))

        def stage_and_wait():
            ticket = str(next(tickets))
            sender.begin(ticket, "none", tokens)
            sender.stage(ticket, table, (0, 256))
            sender.wait_read()
            sender.withdraw(ticket)

        self.assertTrue(self.moves(stage_and_wait))
        self.assertTrue(self.moves(lambda: kvserve.Receiver(cache).close()))
        receiver.close()
        sender.close()


class Threads(unittest.TestCase):
    def test_share_an_encoder_and_a_decoder(self):
        inputs = [kv.gaussian_kv(seed=seed, tokens=40 + seed) for seed in range(8)]
        expected = [bytes(kvserve.encode(x, PROFILE)) for x in inputs]
        encoder, decoder = kvserve.Encoder(PROFILE, threads=2), kvserve.Decoder(threads=2)

        def both(x):
            frame = encoder.encode(x)
            return bytes(frame), decoder.decode(frame).tokens

        with ThreadPoolExecutor(4) as pool:
            for _ in range(5):
                for (frame, tokens), wanted, x in zip(pool.map(both, inputs), expected, inputs):
                    self.assertEqual(frame, wanted)
                    self.assertEqual(tokens, (0, len(x[0][0])))

    def test_errors_stay_with_their_thread(self):
        good, bad = kv.gaussian_kv(), kv.gaussian_kv()
        bad[0][0][0, 0, 0] = numpy.inf
        encoder = kvserve.Encoder("uniform|rans")

        def one(i):
            try:
                return len(encoder.encode(bad if i % 2 else good)) > 0
            except kvserve.BadInputError:
                return False

        with ThreadPoolExecutor(4) as pool:
            self.assertEqual(list(pool.map(one, range(40))), [i % 2 == 0 for i in range(40)])


if __name__ == "__main__":
    unittest.main()
