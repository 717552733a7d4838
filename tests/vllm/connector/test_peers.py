"""Prefill engines that die, fall silent or abort, as the decode engine sees them."""

import contextlib
import socket
import threading
import time
import unittest
from dataclasses import asdict

from stub_engine import Pair, StubEngine, prompt_of, single_answer, single_answers, transfer_config
from test_pair import PairTest

from kvserve.vllm.messages import OfferStart, RemoteKv


class Stranger:
    """Listens where a prefill engine was: hangs up after the first bytes, or says nothing."""

    def __init__(self, hangs_up: bool):
        self._hangs_up = hangs_up
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.accepted = 0
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.accepted += 1
                if self._hangs_up:
                    connection.recv(64)
                    connection.close()
                else:
                    self._open.append(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._open:
            connection.close()


class Deaths(PairTest):
    def lose_a_hundred(self, pair: Pair, address: str) -> None:
        """Requests whose KV was promised and never comes: each is computed on the decode engine,
        whose blocks come back."""
        prompts = [prompt_of(36, seed) for seed in range(10)]
        expected = single_answers(prompts)
        names = []
        for number in range(100):
            prompt = prompts[number % 10]
            params = pair.prefill_request(prompt, salt=str(number))
            params["kvserve"]["addresses"] = [address]
            pair.decode.add(f"d{number}", prompt, 4, params, salt=str(number))
            names.append(f"d{number}")
            if number % 4 == 3:
                pair.decode.run(*names[-4:])
        for number, name in enumerate(names):
            answer = pair.decode.answers[name]
            self.assertEqual(answer.tokens, expected[number % 10])
            self.assertEqual(answer.params["kvserve"]["reason"], "recomputed")
        pair.decode.drain()
        self.assertEqual(pair.decode.free_blocks(), pair.decode.free_at_start)
        receiver = pair.decode.worker._worker._transport.receiver
        self.assertEqual(receiver.running, 0)

    def test_killed_after_metadata_and_before_data_a_hundred_times(self):
        pair = self.pair()
        stranger = Stranger(hangs_up=True)
        self.addCleanup(stranger.close)
        self.lose_a_hundred(pair, stranger.address)
        self.assertGreater(stranger.accepted, 0)

    def test_silent_after_metadata_ends_within_the_deadline(self):
        pair = self.pair(consumer={"deadline_s": 0.1})
        stranger = Stranger(hangs_up=False)
        self.addCleanup(stranger.close)
        self.lose_a_hundred(pair, stranger.address)

    def test_decode_engine_goes_on_and_shows_the_dead_peer_apart(self):
        """With a second prefill engine that lives; what is counted tells dead peers from errors of
        its own."""
        pair = self.pair()
        other = Pair(StubEngine(transfer_config("kv_producer")), pair.decode)
        self.addCleanup(other.prefill.close)
        prompts = [prompt_of(80, seed) for seed in range(6)]
        expected = single_answers(prompts)
        promised = [pair.prefill_request(prompt) for prompt in prompts[:3]]
        pair.prefill.worker.shutdown()
        for n, params in enumerate(promised):
            pair.decode.add(f"dead{n}", prompts[n], 4, params)
        names = [other.start(prompt) for prompt in prompts[3:]]
        pair.decode.run()
        for n, name in enumerate([f"dead{n}" for n in range(3)] + names):
            answer = pair.decode.answers[name]
            self.assertEqual(answer.tokens, expected[n])
            self.assertEqual(answer.params["kvserve"]["error"] is None, n >= 3)
        loads: dict[str, float] = {}
        for stats in pair.decode.stats:
            for key, amount in stats.data["counters"].items():
                name, *labels = key.split("\x1f")
                if name == "loads":
                    loads[labels[0]] = loads.get(labels[0], 0) + amount
        self.assertEqual(loads, {"delivered": 3, "unavailable": 3})
        pair.decode.drain()
        self.assertEqual(pair.decode.free_blocks(), pair.decode.free_at_start)


class Aborts(PairTest):
    def promise(self, pair: Pair, prompt: list[int], ticket: str) -> dict:
        """kv_transfer_params of a request that is still being computed."""
        worker = pair.prefill.worker._worker
        worker._transport.begin(OfferStart(ticket, "none", prompt[:-1], ""))
        remote = RemoteKv(ticket=ticket, addresses=[worker.handshake.address],
                          tokens=len(prompt) - 1, profile="none",
                          reason="default", tp_size=1, facts=worker.handshake.facts)
        return {"do_remote_prefill": True, "kvserve": asdict(remote)}

    def test_fifty_of_a_hundred_aborted_while_they_are_waited_for(self):
        """Each of the fifty is told at once, with the reason, and the others are not held up."""
        pair = self.pair("none", decode={"blocks": 512}, prefill={"blocks": 512},
                         consumer={"connections": 128})
        prompts = [prompt_of(40, seed) for seed in range(100)]
        for n, prompt in enumerate(prompts):
            if n % 2:
                params = pair.prefill_request(prompt)
            else:
                params = self.promise(pair, prompt, f"t{n}")
            pair.decode.add(f"d{n}", prompt, 4, params)
        for _ in range(20):
            pair.decode.step()
        for n in range(0, 100, 2):
            self.assertFalse(pair.decode.answers[f"d{n}"].finished)
        begun = time.monotonic()
        for n in range(0, 100, 2):
            pair.prefill.worker._worker._transport.withdraw(f"t{n}",
                                                            "the prefill request was aborted")
        pair.decode.run()
        # Leases, deadlines and stalls are 300, 120 and 30 seconds.
        self.assertLess(time.monotonic() - begun, 10)
        for n, expected in enumerate(single_answers(prompts)):
            answer = pair.decode.answers[f"d{n}"]
            self.assertEqual(answer.tokens, expected)
            error = answer.params["kvserve"]["error"]
            self.assertEqual("aborted" in (error or ""), n % 2 == 0, error)
        pair.decode.drain()
        self.assertEqual(pair.decode.free_blocks(), pair.decode.free_at_start)

    def test_lease_that_expires_while_it_is_read(self):
        """The load has failed, whatever lies in the prefill engine's blocks by then."""
        pair = self.pair(lease_s=1)
        prompt = prompt_of(40)
        pair.decode.add("d", prompt, 4, self.promise(pair, prompt, "t"))
        pair.decode.step()
        self.assertFalse(pair.decode.answers["d"].finished)
        end = time.monotonic() + 60
        while not pair.decode.answers["d"].finished and time.monotonic() < end:
            pair.decode.step()
        answer = pair.decode.answers["d"]
        self.assertEqual(answer.tokens, single_answer(prompt))
        self.assertRegex(answer.params["kvserve"]["error"], "lease")


class StaleTickets(PairTest):
    """What a router hands on may be old."""

    def expect_refused(self, decode: StubEngine, prompt: list[int], params: dict,
                       words: str) -> None:
        decode.add("stale", prompt, 4, params)
        decode.run("stale")
        self.assertEqual(decode.answers["stale"].tokens, single_answer(prompt))
        self.assertRegex(decode.answers["stale"].params["kvserve"]["error"], words)

    def test_ticket_that_was_taken_already(self):
        pair = self.pair()
        prompt = prompt_of(100)
        params = pair.prefill_request(prompt)
        other = StubEngine(transfer_config("kv_consumer", "recompute"))
        self.addCleanup(other.close)
        pair.decode.add("first", prompt, 4, {**params})
        pair.decode.run("first")
        self.assertIsNone(pair.decode.answers["first"].params["kvserve"]["error"])
        pair.wait_for_no_tickets()
        self.expect_refused(other, prompt, params, "sender: ")

    def test_ticket_of_an_engine_that_was_restarted_at_the_same_address(self):
        pair = self.pair()
        prompt = prompt_of(100)
        params = pair.prefill_request(prompt)
        port = int(params["kvserve"]["addresses"][0].rpartition(":")[2])
        pair.prefill.worker.shutdown()
        again = StubEngine(transfer_config("kv_producer", port=port))
        self.addCleanup(again.close)
        self.expect_refused(pair.decode, prompt, params, "not known here")
        other = prompt_of(100, 1)
        self.assertIsNone(Pair(again, pair.decode).ask(other).params["kvserve"]["error"])


if __name__ == "__main__":
    unittest.main()
