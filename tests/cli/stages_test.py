"""The strategy space as people and programs see it."""

import cli_case


class StagesTest(cli_case.CliCase):
    def test_table(self):
        self.check_golden("stages.txt", self.succeed("stages"))

    def test_document(self):
        stages = self.succeed_json("stages")["stages"]
        ids = [stage["id"] for stage in stages]
        self.assertEqual(ids, sorted(set(ids)))
        names = {(stage["kind"], stage["name"]) for stage in stages}
        self.assertLessEqual({("transform", "hadamard"), ("quantizer", "uniform"),
                              ("quantizer", "none"), ("codec", "none"), ("codec", "rans"),
                              ("codec", "zstd")}, names)
        for stage in stages:
            self.assertIn("host", stage["devices"])
            self.assertIsInstance(stage["lossless"], bool)
            self.assertGreaterEqual(stage["version"], 1)
            for name, parameter in stage["parameters"].items():
                with self.subTest(stage=stage["name"], parameter=name):
                    self.check_parameter(parameter)

    def check_parameter(self, parameter):
        self.assertIn("unit", parameter)
        self.assertTrue(parameter["help"])
        default, takes = parameter["default"], parameter["range"]
        if parameter["type"] in ("integer", "real"):
            self.assertTrue(takes[0] <= default <= takes[1])
        else:
            self.assertIn(default, takes)

    def test_defaults_are_accepted_by_name(self):
        """What the document says can be given back as a profile."""
        for stage in self.succeed_json("stages")["stages"]:
            if not stage["parameters"] or stage["kind"] != "codec":
                continue
            options = ",".join(f"{name}={str(p['default']).lower()}"
                               for name, p in stage["parameters"].items())
            profile = f"none|{stage['name']}:{options}"
            refused = (2, "calibration artefact") if stage["name"] == "contexts" else \
                (3, "missing.safetensors")
            self.refuse(refused[0], "encode", "--profile", profile, "missing.safetensors",
                        "-o", "x", says=refused[1])
