"""evaluate: what is refused before a model is loaded (builds with the embedded engine)."""

import json

import cli_case


class EvaluateTest(cli_case.CliCase):
    def setUp(self):
        super().setUp()
        if "\n  evaluate " not in self.succeed("--help"):
            self.skipTest("this build has no evaluate")
        self.data = self.folder / "data.jsonl"

    def write(self, **fields):
        self.data.write_text(json.dumps({"id": "s/1", "set": "s", **fields}) + "\n")

    def refuse_run(self, status, *options, says):
        self.refuse(status, "evaluate", "--model", "missing.gguf", "--profile", "none", *options,
                    says=says)

    def test_usage(self):
        for options, says in (
                (["--split", "half"], "--split 'half'"),
                (["--context-tokens", "0"], "--context-tokens"),
                (["--scored-tokens", "1"], "--scored-tokens"),
                (["--frame-tokens", "0"], "0"),
                (["--retrieval", "4000000000"], "--retrieval"),
                (["--limit", "-1"], "--limit"),
                (["--profile", "banana"], "banana")):
            with self.subTest(options):
                self.refuse_run(2, *options, says=says)
        self.refuse(2, "evaluate", "--model", "m.gguf", says="--profile")
        self.assert_files()

    def test_records_are_read_first(self):
        self.refuse_run(3, "--data", "missing.jsonl", says="missing.jsonl")
        self.write(task="qa", question="q")
        self.refuse_run(3, "--data", self.data, says="data.jsonl:1: field 'answers' is missing")
        self.write(task="poetry")
        self.refuse_run(3, "--data", self.data, says="data.jsonl:1: task 'poetry'")

    def test_every_task_is_read(self):
        one = {"question": "q", "answers": ["a"]}
        for task, fields in {
                "lm": {"text": "t"}, "cloze": {"context": "c", "answers": ["a"]},
                "mc": {"question": "q", "choices": ["a", "b"], "gold": 0},
                "mc_prefix": {"prefixes": ["a", "b"], "continuation": "c", "gold": 1},
                "math": {**one, "solution": "s"}, "qa": {"context": "c", **one},
                "multi_qa": {"context": "c", "qas": [one]},
                "conv_qa": {"context": "c", "qas": [one, one]},
                "summ": {"context": "c", "qas": [one]},
                "code_line": {"context": "c", "answers": ["a"]},
                "code_gen": {"context": "c", "question": "", "answers": ["a"], "test": "t"},
                "kv": {"context": "c", **one}, "kv_multi": {"context": "c", **one},
                "passage": {"text": "t"}, "prefix": {"text": "t"}}.items():
            with self.subTest(task):
                self.write(task=task, **fields)
                # Nothing is wrong with the record, so the model is the next to be looked at.
                self.refuse_run(3, "--data", self.data, says="missing.gguf")

    def test_the_shipped_records_are_there(self):
        self.refuse_run(3, says="missing.gguf")
        for split in ("search", "test"):
            self.refuse_run(3, "--split", split, says="missing.gguf")

    def test_halves_of_one_record(self):
        self.write(task="lm", text="t")
        statuses = set()
        for split in ("search", "test"):
            done = self.run_tool("evaluate", "--model", "missing.gguf", "--profile", "none", "--data",
                                 self.data, "--split", split)
            self.assertEqual(done.returncode, 3)
            statuses.add("--split" in done.stderr)
        self.assertEqual(statuses, {True, False})
