"""Metrics say whether they are of a rank or of the engine, and add up."""

import unittest

from prometheus_client import REGISTRY
from stub_engine import prompt_of
from test_pair import LOSSY, PairTest
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorProm

from kvserve.vllm.stats import COUNTERS, HISTOGRAMS, KVServeStats


class Aggregation(PairTest):
    def test_help_says_how_each_is_aggregated(self):
        for name, (labels, text) in COUNTERS.items():
            wanted = "Per tensor-parallel rank: sum over rank for the engine" \
                if "rank" in labels else "Per engine"
            self.assertIn(wanted, text, name)
        for name, (_, text) in HISTOGRAMS.items():
            self.assertIn("per load and rank", " ".join(text.split()), name)

    def stats_of_two_ranks(self) -> tuple:
        pair = self.pair(LOSSY, prefill={"ranks": 2}, decode={"ranks": 2})
        said = [pair.ask(prompt_of(100, seed)).params["kvserve"] for seed in range(3)]
        total = KVServeStats()
        for stats in pair.decode.stats:
            total.aggregate(stats)
        return pair, said, total

    def test_vllms_endpoint_has_every_rank_and_their_sum_is_what_requests_report(self):
        pair, said, total = self.stats_of_two_ranks()
        prom = KVConnectorProm(pair.decode.config, ["model_name", "engine"], {0: ["m", "0"]})
        prom.observe(total.data)
        found: dict[tuple[str, str | None], float] = {}
        for metric in REGISTRY.collect():
            for sample in metric.samples:
                if sample.labels.get("direction", "received") == "received":
                    key = (sample.name, sample.labels.get("rank"))
                    found[key] = found.get(key, 0) + sample.value
        wire = [found["vllm:kvserve_wire_bytes_total", rank] for rank in "01"]
        self.assertEqual(sum(wire), sum(one["wire_bytes"] for one in said))
        self.assertTrue(all(wire))
        self.assertEqual([found["vllm:kvserve_loads_total", rank] for rank in "01"], [3, 3])
        self.assertEqual(found["vllm:kvserve_load_seconds_count", None], 6)

    def test_log_line_gives_the_rate_of_a_rank_and_of_the_engine(self):
        total = KVServeStats()
        for rank, seconds in (("0", 0.5), ("1", 0.25)):
            total.add("wire_bytes", 2e6, "received", rank)
            total.add("raw_bytes", 8e6, "received", rank)
            total.add("wire_seconds", seconds, rank)
        line = total.reduce()
        self.assertEqual(line["Load MB/s (mean of ranks)"], 6.0)
        self.assertEqual(line["Load MB/s (all ranks)"], 12.0)
        self.assertEqual(line["Received MB (all ranks)"], 4.0)
        self.assertEqual(line["Compression ratio"], 4.0)


if __name__ == "__main__":
    unittest.main()
