"""What README.md and the other documents tell people to type exists."""

import re
import shlex
import subprocess
from pathlib import Path

import cli_case

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# Commands that only builds with the embedded engine have.
ENGINE_COMMANDS = {"calibrate", "capture", "evaluate", "dequantize", "serve"}


def command_lines():
    """(document, words) of every shell line and inline code that calls kvserve."""
    for document in DOCUMENTS:
        text = document.read_text()
        fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text,
                                                   flags=re.MULTILINE | re.DOTALL))
        for block in [*fenced, *inline]:
            for line in block.replace("\\\n", " ").splitlines():
                if re.match(r"\s*(build/release/bin/)?kvserve [a-z-]", line):
                    yield document.name, shlex.split(line, comments=True)[1:]


class DocumentsTest(cli_case.CliCase):
    def setUp(self):
        super().setUp()
        self.helps = {}

    def help_of(self, path):
        if path not in self.helps:
            self.helps[path] = self.succeed(*path, "--help")
        return self.helps[path]

    def commands_of(self, path):
        parts = self.help_of(path).split("Subcommands:\n")
        return re.findall(r"^  ([\w-]+) ", parts[-1], re.MULTILINE) if len(parts) > 1 else []

    def test_commands_and_options_exist(self):
        seen = set()
        for document, words in command_lines():
            with self.subTest(document=document, line=" ".join(words)):
                if words[0] in ENGINE_COMMANDS and words[0] not in self.commands_of(()):
                    continue
                path = ()
                while words and words[0] in self.commands_of(path):
                    path += (words.pop(0),)
                seen.update(path[:1])
                if words and re.fullmatch(r"[a-z|]+", words[0]) and self.commands_of(path):
                    # A choice such as stages|encode|decode.
                    self.assertLessEqual(set(words[0].split("|")) - ENGINE_COMMANDS,
                                         set(self.commands_of(path)))
                listed = self.help_of(path).split("\nExample")[0]
                options = re.findall(r"(?<![\w-])(--?[\w-]+)", listed)
                for word in words:
                    if re.match(r"--?[a-z]", word):
                        self.assertIn(word.split("=")[0], options)
        self.assertLessEqual({"encode", "decode", "inspect", "compare", "stages"}, seen)

    def test_profiles_parse(self):
        """A profile is looked at before the file, so a missing file says that it is one."""
        profiles = set()
        for _, words in command_lines():
            if "--calib" in words:
                continue  # such a profile is refused for want of an artefact
            profiles.update(after for word, after in zip(words, words[1:]) if word == "--profile")
        for row in re.findall(r"^\| `(.+?)` \|", (ROOT / "README.md").read_text(), re.MULTILINE):
            profiles.add(row.replace("\\|", "|"))
        self.assertGreater(len(profiles), 2)
        for profile in profiles:
            self.refuse(3, "encode", "--profile", profile, "missing.safetensors", "-o", "x",
                        says="missing.safetensors")

    def test_every_stage_has_its_payload_described(self):
        text = (ROOT / "docs" / "FORMAT_STAGES.md").read_text()
        for stage in self.succeed_json("stages")["stages"]:
            heading = f"## {stage['kind'].capitalize()} {stage['name']} ({stage['id']:#06x}"
            self.assertIn(heading, text)

    def test_dev_verbs_exist(self):
        usage = subprocess.run([str(ROOT / "dev")], capture_output=True, text=True, check=True,
                               timeout=60).stdout
        verbs = re.findall(r"^  ([a-z-]+) ", usage, re.MULTILINE)
        for document in DOCUMENTS:
            for verb in re.findall(r"(?:^|`)\./dev ([a-z-]+)", document.read_text(), re.MULTILINE):
                self.assertIn(verb, verbs, document.name)

    def test_links_lead_somewhere(self):
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", document.read_text()):
                self.assertTrue((document.parent / target).exists(), f"{document.name}: {target}")
