"""How much of its rate a Python thread that counts keeps while another encodes and decodes.

    PYTHONPATH=build/release/python python python/tests/gil_bench.py [seconds]

Prints the share per call, a median of alternating turns. The other side of each pair is the rate
beside hashlib's SHA-256 of a large buffer, which keeps a core as busy without the interpreter: what
is lost to a machine that is shared does not count. The tests only show that the interpreter is free.
"""

import hashlib
import statistics
import sys
import threading
import time

import numpy

import kvserve
import kv


class Counter(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.count = 0

    def run(self):
        while True:
            self.count += 1


def rate(counter, call, seconds):
    """Counts per second while `call` is repeated."""
    count, started = counter.count, time.perf_counter()
    while time.perf_counter() < started + seconds:
        call()
    return (counter.count - count) / (time.perf_counter() - started)


class Transfers:
    """Whole requests from one cache to another, one after the other, at 1 Gbit/s."""

    def __init__(self, cache, other):
        self.sender = kvserve.Sender(cache, pace_bytes_per_s=125e6)
        self.receiver = kvserve.Receiver(other)
        self.tokens, self.count = list(range(256)), 0

    def __call__(self):
        self.count += 1
        ticket = str(self.count)
        self.sender.begin(ticket, "hadamard|uniform|rans", self.tokens)
        self.sender.stage(ticket, [0, 1], (0, 256))
        self.receiver.fetch(ticket, self.sender.address, ticket, self.tokens, [1, 0])
        while not (reports := self.receiver.take_reports()):
            time.sleep(0.001)
        assert reports[0].error is None, reports[0].error
        self.sender.take_reports()


def main(seconds=0.3, turns=9):
    tensors = kv.gaussian_kv(tokens=256, heads=8, dim=128, layers=32)
    view = kvserve.view(tensors)
    encoder, decoder = kvserve.Encoder("hadamard|uniform|rans"), kvserve.Decoder()
    frame = encoder.encode(view)
    cache, other = (kvserve.PagedCache([numpy.zeros((2, 2, 128, 8, 128), "f4") for _ in tensors])
                    for _ in range(2))
    chunk = decoder.decode(frame)
    large = bytes(1 << 24)
    counter = Counter()
    counter.start()
    for name, call in (("encode", lambda: encoder.encode(view)),
                       ("decode", lambda: decoder.decode(frame)),
                       ("scatter", lambda: cache.scatter(chunk, [0, 1])),
                       ("gather", lambda: cache.gather([0, 1], (0, 256))),
                       ("transfer", Transfers(cache, other))):
        shares = []
        for _ in range(turns):
            alone = rate(counter, lambda: hashlib.sha256(large), seconds)
            shares.append(rate(counter, call, seconds) / alone)
        print(f"{name}: {statistics.median(shares):.2f} of its rate "
              f"(of {turns} turns the best {max(shares):.2f}, the worst {min(shares):.2f})")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
