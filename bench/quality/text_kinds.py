"""Texts of many kinds, to see what a calibration artefact does to what it was not made of.

    python bench/quality/text_kinds.py --model model.gguf --texts 8 -o kinds.jsonl

Made from a seed: random tokens of the model's vocabulary, random bytes in base64, repeated text,
JSON, formulas in LaTeX, tables of numbers. Found on the machine, where it has them: the standard
library of Python, C and C++ headers, shell scripts, manual pages in other languages. --dialogue
adds the conversations of a data set (records with context and qas). Records are of task lm, their
set is the kind; what is found belongs to its authors and is for measuring only.
"""

import argparse
import base64
import gzip
import json
import random
import re
import struct
import sysconfig
from collections.abc import Iterator
from pathlib import Path

CHARACTERS = 16000  # of a text: 1,792 tokens of most tokenizers and more

WORDS = ("river stone market signal window letter garden engine summer bridge candle forest "
         "number silver travel winter basket thunder paper mountain").split()


def vocabulary(model: Path) -> list[str]:
    """The tokens of a GGUF file that are words or parts of them."""
    data = model.read_bytes()[:1 << 24]
    at = 8

    def take(form: str):
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def string() -> str:
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size:at].decode("utf-8", "replace")

    numbers = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
               12: "d"}

    def value(kind: int):
        if kind == 8:
            return string()
        if kind != 9:
            return take(numbers[kind])
        of = take("I")
        return [value(of) for _ in range(take("Q"))]

    take("Q")
    for _ in range(take("Q")):
        key = string()
        found = value(take("I"))
        if key == "tokenizer.ggml.tokens":
            plain = [token.replace("\u0120", " ").replace("\u2581", " ") for token in found]
            return [token for token in plain if token.isascii() and token.isprintable()
                    and not token.startswith("<")]
    raise SystemExit(f"{model}: no vocabulary")


def formula(rng: random.Random, depth: int = 0) -> str:
    letter = rng.choice([*"abcfgkmnpqstuvxyz", r"\alpha", r"\beta", r"\lambda", r"\mu", r"\theta"])
    if depth > 2:
        return letter
    one, two = formula(rng, depth + 1), formula(rng, depth + 1)
    return rng.choice([
        f"{one} + {two}", f"{one} = {two}", rf"\frac{{{one}}}{{{two}}}", f"{letter}_{{{one}}}",
        f"{letter}^{{{rng.randint(2, 9)}}}", rf"\sqrt{{{one}}}",
        rf"\sum_{{{letter}=1}}^{{n}} {one}", rf"\int_0^1 {one} \, d{letter}",
        rf"\left( {one} - {two} \right)", rf"\mathbb{{E}}[{one} \mid {two}]"])


def made_json(rng: random.Random) -> str:
    return json.dumps({"id": rng.randrange(10**6), "name": " ".join(rng.sample(WORDS, 2)),
                       "active": rng.random() < .5, "score": round(rng.uniform(0, 100), 3),
                       "tags": rng.sample(WORDS, 3),
                       "position": {"lat": round(rng.uniform(-90, 90), 5),
                                    "lon": round(rng.uniform(-180, 180), 5)}})


def lines(rng: random.Random, make) -> str:
    text = ""
    while len(text) < CHARACTERS:
        text += make(rng) + "\n"
    return text


def repeated(rng: random.Random, index: int) -> str:
    sentence = " ".join(rng.choices(WORDS, k=9)).capitalize() + ". "
    units = [f"{rng.choice('aexz01')} ", f"{rng.choice(WORDS)} ", sentence,
             "".join(" ".join(rng.choices(WORDS, k=12)).capitalize() + ". " for _ in range(6))]
    unit = units[index % len(units)]
    return unit * (2 * CHARACTERS // len(unit))


def made(rng: random.Random, tokens: list[str], index: int) -> dict[str, str]:
    kinds = {
        "base64": base64.b64encode(rng.randbytes(CHARACTERS * 3 // 4)).decode(),
        "repeated": repeated(rng, index),
        "json": lines(rng, made_json),
        "latex": lines(rng, lambda r: rf"\[ {formula(r)} = {formula(r)} \]"),
        "numbers": lines(rng, lambda r: "\t".join(f"{r.gauss(0, 50):.{index % 4}f}"
                                                  for _ in range(8))),
    }
    if tokens:
        kinds["random-tokens"] = "".join(rng.choices(tokens, k=5000))
    return kinds


def plain_manual(page: Path) -> str:
    text = gzip.open(page, "rt", encoding="utf-8", errors="replace").read()
    text = re.sub(r'^[.\'](\\"|TH|ds|de|if|ie|el|nr).*$', "", text, flags=re.M)
    text = re.sub(r"^\.[A-Za-z]+ ?", "", text, flags=re.M)
    text = re.sub(r"\\f.|\\[&/|,]", "", text)
    text = text.replace("\\-", "-").replace("\\(bu", "*").replace("\\e", "\\")
    return re.sub(r"\n\s*\n+", "\n\n", text)


def joined(parts: Iterator[str], least: int = CHARACTERS) -> Iterator[str]:
    text = ""
    for part in parts:
        text += part + "\n\n"
        if len(text) >= least:
            yield text[:4 * CHARACTERS]
            text = ""


def files(folder: Path, pattern: str, rng: random.Random, least: int = CHARACTERS) -> Iterator[str]:
    found = sorted(path for path in folder.glob(pattern)
                   if path.is_file() and least <= path.stat().st_size < 1 << 20)
    rng.shuffle(found)
    for path in found:
        text = path.read_text(encoding="utf-8", errors="replace")
        # Behind the head, which is a licence in many files.
        yield text[max(0, min(3000, len(text) - CHARACTERS)):]


def manuals(folder: Path, language: str, rng: random.Random) -> Iterator[str]:
    pages = sorted((folder / language).glob("man*/*.gz"))
    rng.shuffle(pages)
    return joined(plain_manual(page) for page in pages)


def conversations(data: Path) -> Iterator[str]:
    with data.open(encoding="utf-8") as records:
        for line in records:
            record = json.loads(line)
            yield "".join(f"A: {qa['question']}\nB: {qa['answers'][0]}\n" for qa in record["qas"])


def kinds(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    rng = random.Random(arguments.seed)
    tokens = vocabulary(arguments.model) if arguments.model else []
    for index in range(arguments.texts):
        yield from made(rng, tokens, index).items()
    found = {
        "python": files(Path(sysconfig.get_path("stdlib")), "*.py", rng),
        "c-headers": files(Path("/usr/include"), "**/*.h", rng),
        "shell": joined(files(Path("/usr"), "[ls]*/**/*.sh", rng, 2000)),
        **{language: manuals(Path("/usr/share/man"), language, rng)
           for language in arguments.languages},
    }
    if arguments.dialogue:
        found["dialogue"] = joined(conversations(arguments.dialogue), 6600)
    for kind, texts in found.items():
        for _, text in zip(range(arguments.texts), texts):
            yield kind, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="GGUF file, for random tokens")
    parser.add_argument("--dialogue", type=Path, help="JSON lines with qas")
    parser.add_argument("--languages", nargs="*", default=["de", "fr", "ru", "ja"])
    parser.add_argument("--texts", type=int, default=8, help="of each kind, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", type=Path, required=True)
    arguments = parser.parse_args()
    count: dict[str, int] = {}
    with arguments.o.open("w", encoding="utf-8") as out:
        for kind, text in kinds(arguments):
            index = count[kind] = count.get(kind, -1) + 1
            out.write(json.dumps({"id": f"{kind}/{index}", "set": kind, "task": "lm",
                                  "text": text}) + "\n")
    print(", ".join(f"{kind} {last + 1}" for kind, last in count.items()))


if __name__ == "__main__":
    main()
