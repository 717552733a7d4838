"""report: pages and tables from documents of evaluate."""

import json

import cli_case


def profile(name, ratio, kl, **more):
    return {"profile": name, "n": 8, "kl": kl, "kl_ci95": [kl / 2, kl * 2],
            "compression_ratio": ratio, "wire_bytes": 1000, "top1_agreement": 0.9,
            "nll_delta": 0.001, "encode_bytes_per_s": 1e9, "decode_bytes_per_s": 2e9, **more}


class ReportTest(cli_case.CliCase):
    def write(self, name, **document):
        (self.folder / name).write_text(json.dumps(document))

    def setUp(self):
        super().setUp()
        retrieval = {"n": 24, "baseline": 1.0, "value": 0.875, "value_ci95": [0.69, 0.96],
                     "weak_baseline": False}
        self.write("a.json", model="SmolLM2", total=profile("none", 1.0, 0.0),
                   profiles=[profile("none", 1.0, 0.0),
                             profile("hadamard|uniform|rans", 4.8, 0.005, retrieval=retrieval)])
        self.write("b.json", model="SmolLM2", total=profile("worse", 4.0, 0.01))
        self.write("c.json", model="<i>", total=profile("none", 1.0, 0.0))

    def test_markdown(self):
        self.check_golden("report.md", self.succeed("report", "a.json", "b.json", "c.json",
                                                    "--markdown"))

    def test_page(self):
        document = self.succeed_json("report", "a.json", "b.json", "c.json", "-o", "r.html")
        self.assertEqual((document["documents"], document["models"], document["profiles"]), (3, 2, 4))
        page = (self.folder / "r.html").read_text()
        self.assertIn("&lt;i&gt;", page)
        self.assertNotIn("<i>", page)
        self.assertEqual(page.count("<svg"), 3)  # retrieval of one model only
        for other in ("http", "<script", "src="):
            self.assertNotIn(other, page)

    def test_plots(self):
        (self.folder / "plots").mkdir()
        self.succeed("report", "a.json", "--plots", "plots")
        self.assertEqual(sorted(file.name for file in (self.folder / "plots").iterdir()),
                         ["smollm2-kl.svg", "smollm2-retrieval.svg"])
        self.refuse(2, "report", "a.json", "--plots", "nowhere", says="nowhere")

    def test_profiles_in_pairs(self):
        self.write("p.json", model="m", total=profile("a", 4.0, 0.02), profiles=[
            profile("a", 4.0, 0.02, kl_by_prompt=[0.01, 0.03]),
            profile("b", 5.0, 0.01, kl_by_prompt=[0.01, 0.01])])
        text = self.succeed("report", "p.json", "--markdown", "--against", "a")
        self.assertIn("| **`b`** | 0.800x | 0.500x | -0.01000 (-0.02000-0.00000) | 1 of 2 |", text)
        self.refuse(3, "report", "p.json", "--markdown", "--against", "c", says="--against c")

    def test_refusals(self):
        self.refuse(2, "report", "a.json", says="--markdown")
        self.refuse(2, "report", "--markdown")
        self.refuse(2, "report", "a.json", "--markdown", "--json", says="both go to stdout")
        self.refuse(3, "report", "missing.json", "--markdown", says="missing.json")
        self.write("d.json", stages=[])
        self.refuse(3, "report", "d.json", "-o", "r.html", says="d.json: not a document of")
        self.refuse(2, "report", "a.json", "-o", "no/such/folder/r.html", says="no/such/folder")
        self.refuse(2, "report", "a.json", "-o", "./a.json", says="is the input")
        self.assert_files("a.json", "b.json", "c.json", "d.json")
