"""The harness's own arithmetic: policies, streams, rows, verdicts. No server runs here."""

import argparse
import contextlib
import io
import unittest
from unittest import mock

from vllm_pd import goals, measure, policies, results, soak
from vllm_pd.client import Answer, Client, RequestFailed, events, took_event


def answer(tokens=(1, 2, 3, 4), ttft_ms=100.0, jct_ms=200.0) -> Answer:
    return Answer(list(tokens), ttft_ms, jct_ms, "length", [])


class Policies(unittest.TestCase):
    def test_a_profile_stands_for_its_policy(self):
        lossy = next(name for name in policies.POLICIES if name.startswith("static:"))
        found = policies.named(["none", lossy.removeprefix("static:")])
        self.assertEqual([policy.name for policy in found], ["none", lossy])
        self.assertEqual([policy.exact for policy in found], [True, False])

    def test_an_unknown_policy_is_named(self):
        with self.assertRaisesRegex(ValueError, "nonsuch.*single"):
            policies.named(["nonsuch"])

    def test_settings_are_filled_in_per_side(self):
        connector = policies.Connector("C", "m", (("host", "{kv_host}"), ("file", "{token_file}")),
                                       roles=("kv_producer", "kv_consumer"))
        config = connector.config("decode", "10.0.0.2", "/token")
        self.assertEqual(config["kv_role"], "kv_consumer")
        self.assertEqual(config["kv_connector_extra_config"],
                         {"host": "10.0.0.2", "file": "/token"})

    def test_policies_of_one_connector_share_servers(self):
        first, second = policies.pinned("none"), policies.pinned("lossless")
        groups = measure.groups([first, policies.SINGLE, second])
        self.assertEqual(groups, [[first, second], [policies.SINGLE]])


class Streams(unittest.TestCase):
    def test_tokens_and_times_are_taken_from_events(self):
        lines = [b'data: {"choices": [{"token_ids": [5]}]}\n', b"\n",
                 b'data: {"choices": [{"token_ids": [6, 7], "finish_reason": "length"}]}\n',
                 b"data: [DONE]\n"]
        got = answer(tokens=(), ttft_ms=0.0)
        got.finish_reason = ""
        for now_ms, event in enumerate(events(lines), start=10):
            took_event(got, event, now_ms)
        self.assertEqual((got.tokens, got.ttft_ms, got.token_ms), ([5, 6, 7], 10, [10, 11]))
        self.assertEqual(got.finish_reason, "length")

    def test_an_error_in_the_stream_is_a_failure(self):
        with self.assertRaisesRegex(RequestFailed, "load failed"):
            took_event(answer(), {"error": {"message": "load failed"}}, 0)

    def test_metrics_are_summed_over_labels(self):
        text = '# HELP a b\na{engine="0"} 0.25\na{engine="1"} 0.5\nab 7\n'
        client = Client(None, "decode", "h", 1)
        with mock.patch.object(client, "get", return_value=(200, text)):
            self.assertEqual(client.metric("a"), 0.75)
            self.assertEqual(client.metric("ab"), 7)
            with self.assertRaises(KeyError):
                client.metric("b")


class Results(unittest.TestCase):
    PLAN = measure.Plan(policies.named(["single", "nixl", "none"]), [0, 20], [64, 128], 1, 1)

    def document(self, samples, reports=None):
        with mock.patch.object(results, "kv_bytes_per_token", return_value=10):
            return results.document(samples, reports or {}, self.PLAN, {})

    def sample(self, policy, mbps, ttft_ms, tokens=128, got=(1, 2, 3, 4), wire_bytes=640):
        return measure.Sample(policy, mbps, tokens, 0, wire_bytes,
                              answer(got, ttft_ms, ttft_ms + 50))

    def test_cost_is_a_share_of_uncompressed_transfer(self):
        result = self.document([self.sample("none", 0, 100), self.sample("none", 20, 1100),
                                self.sample("nixl", 20, 600)])
        row = results.find(result["rows"], results.NAME, 20, "nixl")
        self.assertAlmostEqual(results.cost(result, row), 0.5)
        self.assertEqual(row["compression_ratio"], 2)

    def test_what_the_connector_reports_comes_first(self):
        report = {"compression_ratio": 3.5, "stages_ms": {"wire": 7.0, "total": 9.0}}
        result = self.document([self.sample("none", 0, 100)], {("none", 128): report})
        row = result["rows"][0]
        self.assertEqual(row["compression_ratio"], 3.5)
        self.assertEqual(row["stages_ms"]["wire"], 7)
        self.assertIsNone(row["stages_ms"]["encode"])
        self.assertEqual(row["stages_ms"]["rest"], 50)

    def test_each_prompt_length_is_a_model_of_its_own(self):
        result = self.document([self.sample("none", 0, 100), self.sample("none", 0, 60, tokens=64)])
        self.assertEqual({row["model"] for row in result["rows"]}, set(result["floor"]))
        self.assertEqual(len(result["floor"]), 2)

    def test_exact_policies_have_no_kl(self):
        rows = [{"policy": policy} for policy in ("single", "none", "static:x", "static:y")]
        kl = [r["kl"] for r in results.with_kl(rows, {"none": 0.0, "x": 0.01})]
        self.assertEqual(kl, [0.0, 0.0, 0.01, None])
        self.assertEqual([r["kl"] for r in results.with_kl(rows, {})], [None] * 4)

    def test_tokens_are_compared_with_the_first_policy(self):
        result = self.document([self.sample("single", 0, 100, wire_bytes=0),
                                self.sample("nixl", 0, 100, got=(1, 2, 3, 9))])
        row = results.find(result["rows"], results.NAME, 0, "nixl")
        self.assertEqual(row["token_agreement"], 0.75)


class Goals(unittest.TestCase):
    def test_noise_is_no_slowness(self):
        difference, half = goals.slower_ms([100, 110, 120], [100, 105, 119])
        self.assertGreater(difference, 0)
        self.assertLess(difference, half)
        difference, half = goals.slower_ms([200, 201, 202], [100, 101, 102])
        self.assertGreater(difference, half)

    def said(self, run) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run()
        return out.getvalue()

    def test_overhead_is_judged_per_link(self):
        samples = [measure.Sample(policy, mbps, 128, index, 0, answer(ttft_ms=ms + index))
                   for policy, mbps, ms in (("none", 0, 100), ("nixl", 0, 100),
                                            ("none", 20, 900), ("nixl", 20, 500))
                   for index in range(3)]
        lines = self.said(lambda: goals.check_overhead(samples)).splitlines()
        self.assertEqual([line[:4] for line in lines], ["ok  ", "MISS"])

    def test_poor_quality_earns_nothing(self):
        row = {"model": "m", "prompt_tokens": 128, "link_mbps": 20}
        result = {"floor": {"m": {"ttft_ms": 100, "policy": "none"}}, "rows": [
            row | {"policy": "none", "ttft_ms": 1100, "kl": 0.0},
            row | {"policy": "static:poor", "ttft_ms": 110, "kl": 0.5},
            row | {"policy": "static:good", "ttft_ms": 600, "kl": 0.01}]}
        self.assertRegex(self.said(lambda: goals.check_lossy(result)), "^MISS.*good costs 0.50")


class FakeCluster:
    """Answers every prompt with its first token; every third request fails."""

    class network:
        isolated = False

    def __init__(self):
        self.client, self.servers, self.asked = self, {}, 0

    def complete(self, prompt, *_, abort_after_tokens=None, **__):
        self.asked += 1
        if abort_after_tokens is not None:
            raise soak.Aborted
        if self.asked % 3 == 0:
            raise RequestFailed("refused")
        return answer(tokens=prompt[:1])

    def restart(self, side):
        return 0.0

    def wait_idle(self, seconds):
        return {"decode": 0.0}


class SoakVerdict(unittest.TestCase):
    def verdict(self, expected, **changes):
        options = argparse.Namespace(requests=60, concurrent=4, abort_share=0.2, faults=2, seed=1)
        cluster = FakeCluster()
        run = soak.Soak(cluster, policies.POLICIES["none"], [[1], [2]], expected, options)
        with contextlib.redirect_stdout(io.StringIO()):
            run.run()
        cluster.asked = 0
        for name, value in changes.items():
            setattr(cluster, name, value)
        return run.verdict()

    def test_every_request_has_an_end(self):
        found = self.verdict([[1], [2]])
        self.assertTrue(found["passed"], found)
        self.assertEqual(sum(found["ends"].values()), 60)
        self.assertEqual(found["failure_reasons"], {"refused": found["ends"]["failed"]})
        self.assertEqual(found["faults"], ["kill prefill", "kill decode"])

    def test_a_wrong_answer_fails_it(self):
        self.assertFalse(self.verdict([[1], [9]])["passed"])

    def test_blocks_that_stay_fail_it(self):
        self.assertFalse(self.verdict([[1], [2]], wait_idle=lambda _: {"decode": 0.1})["passed"])


if __name__ == "__main__":
    unittest.main()
