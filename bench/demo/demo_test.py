"""The demo's arithmetic: recommendation, means, costs, pairs, names."""

import math
import socket
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

from demo import choice, plan, quality, report, results, summary
from demo.client import STAGES, Answer, Client, RequestFailed, parse
from demo.measure import ModelRun, Sample

LOSSY = plan.PROFILES[3]


def answer(profile: str = "none", jct_ms: float = 1000.0, tokens=(1, 2, 3, 4), **changes) -> Answer:
    facts = dict(tokens=list(tokens), jct_ms=jct_ms, ttft_ms=jct_ms / 2, profile=profile,
                 reason="pinned", compression_ratio=1.0, wire_bytes=1000, raw_bytes=1000,
                 link_bytes_per_s=0.0, recomputed_tokens=0, stages_ms=dict.fromkeys(STAGES, 10.0))
    return Answer(**{**facts, **changes})


def model_run(samples: list[Sample]) -> ModelRun:
    run = ModelRun("m", {profile: 0.0 if profile in ("none", "lossless") else 0.01
                         for profile in plan.PROFILES})
    run.samples = samples
    run.recommended = {mbps: LOSSY for mbps in plan.LINKS_MBPS}
    return run


class Choice(unittest.TestCase):
    SPEEDS = {"none": choice.Speed(1, math.inf, math.inf), "fast": choice.Speed(2, 1e9, 1e9),
              "small": choice.Speed(8, 1e8, 1e8), "wrong": choice.Speed(50, 1e9, 1e9)}
    KL = {"none": 0, "fast": 0.001, "small": 0.01, "wrong": 0.5}

    def pick(self, bytes_per_s: float) -> str:
        return choice.recommend(self.SPEEDS, self.KL, 10**8, bytes_per_s)

    def test_slow_links_take_the_smallest_that_is_good_enough(self):
        self.assertEqual(self.pick(1e6), "small")

    def test_fast_links_are_left_alone(self):
        self.assertEqual(self.pick(1e10), "none")

    def test_between_the_two_the_cheap_codec_wins(self):
        self.assertEqual(self.pick(1e8), "fast")

    def test_codec_times_add_up(self):
        speed = choice.Speed(4, 2e8, 1e8)
        self.assertAlmostEqual(choice.predicted_s("p", speed, 10**8, 1e7), 0.5 + 1 + 2.5)

    def test_link_rate_prefers_the_estimate_of_the_node(self):
        self.assertEqual(choice.link_rate(answer(link_bytes_per_s=5.0)), 5.0)
        self.assertEqual(choice.link_rate(answer(wire_bytes=1000)), 1e5)


class Results(unittest.TestCase):
    def test_cost_is_counted_from_the_floor(self):
        run = model_run([Sample(0, "none", 0, False, answer(jct_ms=1000)),
                         Sample(20, "none", 0, False, answer(jct_ms=5000)),
                         Sample(20, LOSSY, 0, False, answer(jct_ms=2000))])
        result = results.document([run], {})
        row = results.find(result["rows"], "m", 20, f"static:{LOSSY}")
        self.assertAlmostEqual(results.cost_ratio(result, row), 0.25)
        self.assertIsNone(results.cost_ratio(result, result["rows"][-1]))

    def test_tokens_are_compared_with_none_on_the_same_prompt(self):
        run = model_run([Sample(0, "none", 0, False, answer(tokens=(1, 2, 3, 4))),
                         Sample(0, "none", 1, False, answer(tokens=(9, 9, 9, 9))),
                         Sample(20, LOSSY, 0, False, answer(tokens=(1, 2, 3, 5))),
                         Sample(20, LOSSY, 1, False, answer(tokens=(9, 9)))])
        row = results.find(results.rows(run), "m", 20, f"static:{LOSSY}")
        self.assertAlmostEqual(row["token_agreement"], (0.75 + 0.5) / 2)

    def test_pairs_are_told_apart_whichever_came_first(self):
        link = plan.PAIRED_LINK_MBPS
        samples = []
        for index in range(10):
            both = [Sample(link, "none", index, True, answer(jct_ms=1000 + index)),
                    Sample(link, LOSSY, index, True, answer(jct_ms=1200 + index + index % 3))]
            samples += both if index % 2 == 0 else both[::-1]
        found = results.paired_difference(model_run(samples))
        self.assertEqual(found["pairs"], 10)
        self.assertAlmostEqual(found["mean_ms"], 200.9)
        self.assertFalse(found["no_slower"])

    def test_a_recomputed_row_is_warned_about(self):
        run = model_run([Sample(20, LOSSY, 0, False, answer(recomputed_tokens=999, reason="gone"))])
        result = results.document([run], {})
        self.assertEqual(result["rows"][0]["recomputed"], 1)
        self.assertIn("gone", report.warnings(result)[0])

    def test_best_lossy_profile_keeps_the_quality_limit(self):
        run = model_run([Sample(20, plan.PROFILES[2], 0, False, answer(jct_ms=3000)),
                         Sample(20, plan.PROFILES[4], 0, False, answer(jct_ms=2000))])
        run.kl[plan.PROFILES[4]] = 0.03
        best = summary.best_lossy(results.document([run], {}), "m", 20)
        self.assertEqual(best["policy"], f"static:{plan.PROFILES[2]}")


class Calibrated(unittest.TestCase):
    def result(self, kl: float = 0.005) -> dict:
        run = model_run([Sample(0, "none", 0, False, answer(jct_ms=1000)),
                         Sample(20, "none", 0, False, answer(jct_ms=5000)),
                         Sample(20, LOSSY, 0, False, answer(jct_ms=2000)),
                         Sample(20, plan.CALIBRATED, 0, False, answer(jct_ms=1200))])
        run.kl[plan.CALIBRATED] = kl
        return results.document([run], {})

    def test_it_is_told_apart_from_the_best_without_calibration(self):
        ours, rival = summary.calibrated_pair(self.result(), "m", 20)
        self.assertEqual(ours["policy"], plan.policy(plan.CALIBRATED))
        self.assertEqual(rival["policy"], f"static:{LOSSY}")
        self.assertIsNone(summary.calibrated_pair(self.result(), "m", 5))
        sentence, = report.calibrated_costs(self.result())
        self.assertIn("calibrated 5.0%", sentence)
        self.assertIn("K16 V8 25.0%", sentence)

    def test_no_prompt_is_a_text_of_the_calibration(self):
        run = subprocess.run(["bash", "-c", ". scripts/dev/calibration.sh && calibration_texts"],
                             cwd=plan.ROOT, check=True, capture_output=True, text=True)
        texts = run.stdout.splitlines()
        self.assertEqual(len(texts), 16)
        most = max(plan.FULL.pairs, plan.FULL.evaluated_prompts, *plan.FULL.repeats.values())
        self.assertFalse(set(texts) & set(plan.PROMPTS.read_text().splitlines()[:most]))

    def test_an_artefact_is_made_again_when_what_it_is_from_has_changed(self):
        script = """
            set -euo pipefail
            for part in steps packages python models build calibration; do . scripts/dev/$part.sh; done
            ensure_model() { :; }
            calibrate() { echo made && echo artefact >"$2"; }
            ensure_artefact smollm2 | grep -c made || true"""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for part in ("data", "include", "scripts", "src", "tools"):
                (folder / part).symlink_to(plan.ROOT / part)
            models = folder / "build" / "models"
            models.mkdir(parents=True)
            model = models / "smollm2-f16.gguf"

            def times_made() -> int:
                return int(subprocess.run(["bash", "-c", script], cwd=folder, check=True,
                                          capture_output=True, text=True).stdout)
            model.write_text("one")
            self.assertEqual(times_made(), 1)
            self.assertEqual(times_made(), 0)
            model.write_text("two")
            self.assertEqual(times_made(), 1)
            (models / "smollm2.calib.inputs").unlink()
            self.assertEqual(times_made(), 1)
            (models / "smollm2.calib").unlink()
            self.assertEqual(times_made(), 1)
            self.assertEqual(times_made(), 0)


class Requests(unittest.TestCase):
    def test_a_node_that_dies_fails_the_request(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            dying = threading.Thread(target=lambda: server.accept()[0].close())
            dying.start()
            with self.assertRaises(RequestFailed):
                Client(socket.socket, server.getsockname()[1]).complete([1], None, 1)
            dying.join()


class Forms(unittest.TestCase):
    def test_short_names(self):
        self.assertEqual(report.short(f"static:{LOSSY}"), "K16 V8")
        self.assertEqual(report.short("lossless"), "lossless")

    def test_totals_of_one_or_several_profiles(self):
        self.assertEqual(quality.totals({"total": {"kl": 1}}), [{"kl": 1}])
        self.assertEqual(quality.totals({"total": {}, "profiles": [{"kl": 1}]}), [{"kl": 1}])

    def test_absent_facts_are_not_invented(self):
        got = parse({"choices": [{"token_ids": [7]}]}, 12.0)
        self.assertEqual((got.tokens, got.wire_bytes, got.link_bytes_per_s), ([7], 0, 0.0))

    def test_shipped_prompts_are_plain_records(self):
        import json
        lines = plan.PROMPTS.read_text().splitlines()
        records = [json.loads(line) for line in lines]
        self.assertEqual(len(records), 50)
        self.assertEqual(len({record["id"] for record in records}), 50)
        self.assertTrue(all(record["task"] == "lm" and len(record["text"]) > 3000
                            for record in records))


if __name__ == "__main__":
    unittest.main()
