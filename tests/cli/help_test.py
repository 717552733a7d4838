"""--help, --version and wrong usage."""

import re

import cli_case

# Commands that every build has; those of the embedded engine come on top.
ALWAYS = ["stages", "encode", "decode", "inspect", "compare", "bench", "report"]


class HelpTest(cli_case.CliCase):
    def commands(self):
        listing = self.succeed("--help").split("Subcommands:\n")[1].split("\n\n")[0]
        return re.findall(r"^  (\w+) ", listing, re.MULTILINE)

    def test_main_help_lists_every_command(self):
        text = self.succeed("--help")
        found = self.commands()
        self.assertEqual([name for name in found if name in ALWAYS], ALWAYS)
        for name in found:
            if name not in ALWAYS:
                text = re.sub(rf"^  {name} .*\n", "", text, flags=re.MULTILINE)
        self.check_golden("help.txt", text)

    def test_every_command_explains_itself(self):
        for name in self.commands():
            with self.subTest(name):
                text = self.succeed(name, "--help")
                if name in ALWAYS:
                    self.check_golden(f"help-{name}.txt", text)
                    self.assertIn("\nExamples:\n  kvserve " + name, text)

    def test_version(self):
        self.assertRegex(self.succeed("--version"), r"^kvserve \d+\.\d+\.\d+\n$")

    def test_wrong_usage(self):
        encode = ["encode", "kv.safetensors", "-o", "x.kvs"]
        lines = []
        for arguments in (
                [],
                ["stages", "--colour"],
                ["stages", "extra"],
                encode,
                ["encode", "--profile", "none", "-o", "x.kvs"],
                [*encode, "--profile", "none", "--calibre", "c.calib"],
                [*encode, "--profile", "none", "--frame-tokens", "0"],
                [*encode, "--profile", "none", "--frame-tokens", "-1"],
                [*encode, "--profile", "none", "--frame-tokens", "16777217"],
                [*encode, "--profile", "none", "--frame-tokens", "1e3"],
                ["decode", "x.kvs"],
                ["decode", "x.kvs", "-o", "y", "--clamp"],
                ["decode", "x.kvs", "-o", "y", "--dtype", "float64"],
                ["inspect"],
                ["compare", "a.kvs"],
                ["compare", "a.kvs", "b.kvs", "c.kvs"]):
            lines.append(" ".join(["kvserve", *arguments]) + "\n  " + self.refuse(2, *arguments))
        self.check_golden("usage-errors.txt", "".join(lines))
        self.refuse(2, "compress", says="unknown command 'compress'; there are stages, ")
        self.assert_files()

    def test_isa_pin_is_checked(self):
        done = self.run_tool("stages", "--json", env={"KVSERVE_ISA": "mmx"})
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        done = self.run_tool("stages", "--json", env={"KVSERVE_ISA": "scalar"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.parse_json(done.stdout)["machine"]["isa"], "scalar")
