"""kvserve bench: the answer is there, not whether it is fast."""

import cli_case
import kv_sample

QUICK = ["--seconds", "0.001", "--memcpy-bytes", "1048576", "--threads", "1"]
HEADLINE = "hadamard|uniform:k_levels=16,v_levels=8|rans"


class BenchTest(cli_case.CliCase):
    def rows(self, *arguments):
        document = self.succeed_json("bench", "codec", *QUICK, *arguments)
        self.assertGreaterEqual(document["load_average_1min"], 0)
        return document["rows"]

    def test_rows_of_a_file(self):
        kv_sample.write_random(self.folder / "kv.safetensors", tokens=100)
        rows = self.rows("--data", "kv.safetensors", "--profile", HEADLINE, "--profile", "lossless",
                         "--frame-tokens", "64", "--frame-tokens", "all", "--threads", "2")
        self.assertEqual([(row["name"], row["threads"], row["frame_tokens"]) for row in rows],
                         [("memcpy", 1, 0), ("memcpy", 2, 0)] +
                         [(name, threads, tokens) for name in (HEADLINE, "lossless")
                          for tokens in (64, 100) for threads in (1, 2)])
        for row in rows:
            self.assertGreater(row["encode_bytes_per_s"], 0)
            self.assertGreater(row["decode_bytes_per_s"], 0)
            self.assertGreaterEqual(row["compression_ratio"], 1)
            self.assertTrue(row["isa"])
        for row in rows[2:]:
            self.assertEqual(row["data"], "kv.safetensors")
            self.assertEqual(row["raw_bytes"] / row["wire_bytes"], row["compression_ratio"])
            self.assertEqual(row["k_rms_relative"] > 0, row["name"] == HEADLINE)
            self.assertEqual(row["whole_request"], row["frame_tokens"] == 100)
            self.assertIn("rans", row["decode_stages_s"])

    def test_default_data_is_the_sample_and_a_synthetic_shape(self):
        rows = self.rows("--profile", "none", "--frame-tokens", "all")[1:]
        self.assertEqual([(row["data"], row["dtype"], row["frame_tokens"]) for row in rows],
                         [("smollm2-128-f16", "float16", 128),
                          ("smollm2-128-bf16", "bfloat16", 128),
                          ("llama-3.1-8b-shape", "bfloat16", 512)])

    def test_instruction_sets(self):
        kv_sample.write_random(self.folder / "kv.safetensors", tokens=10)
        rows = self.rows("--data", "kv.safetensors", "--profile", HEADLINE, "--frame-tokens", "all",
                         "--isa", "scalar")
        self.assertEqual(rows[1]["isa"], "scalar")

    def test_table_for_people(self):
        kv_sample.write_random(self.folder / "kv.safetensors", tokens=10)
        text = self.succeed("bench", "codec", *QUICK, "--data", "kv.safetensors")
        self.assertRegex(text, r"memcpy, 1 thread, buffers of 1.0 MB .*: [\d.]+ [MGT]B/s\n")
        self.assertIn("\nkv.safetensors (bfloat16)\n", text)
        self.assertIn("Where the time goes", text)

    def test_refusals(self):
        self.refuse(2, "bench", "codec", "--profile", "uniform|lzma", says="lzma")
        self.refuse(2, "bench", "codec", "--isa", "mmx", says="mmx")
        self.refuse(2, "bench", "codec", "--seconds", "nan", says="--seconds")
        self.refuse(2, "bench", "codec", "--threads", "0", says="--threads")
        self.refuse(2, "bench", "codec", "--frame-tokens", "0", says="0")
        self.refuse(3, "bench", "codec", *QUICK, "--data", "none.safetensors", says="none.saf")
        kv_sample.write_random(self.folder / "kv.safetensors", tokens=10)
        self.refuse(2, "bench", "codec", *QUICK, "--data", "kv.safetensors", "--profile", "snapkv",
                    says="'attention' ranks tokens by the prompt's queries")
        self.refuse(2, "bench", says="subcommand")
