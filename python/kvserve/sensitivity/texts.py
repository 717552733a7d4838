"""Texts of data sets: records in the schema of docs/EVALUATION.md, or plain files."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def plain_text(record: dict) -> str:
    """Everything of a record that a model would read, as one text: context, questions, answers."""
    parts = [record.get("text") or record.get("context") or ""]
    for asked in record.get("qas") or [record]:
        answer = record.get("solution") or (asked.get("answers") or [""])[0]
        parts.append("\n".join(part for part in (asked.get("question"), answer) if part))
    if "prefixes" in record:
        parts.append(record["prefixes"][record["gold"]] + " " + record["continuation"])
    return "\n\n".join(part for part in parts if part)


def read_texts(paths: Iterable[Path]) -> Iterator[str]:
    """A text per line of .jsonl and .jsonl.gz, one text of any other file."""
    for path in paths:
        opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else \
            path.open(encoding="utf-8")
        with opened as file:
            if ".jsonl" in path.suffixes[-2:]:
                yield from (plain_text(json.loads(line)) for line in file if line.strip())
            else:
                yield file.read()


def pieces(texts: Iterable[str], tokens_of: Callable[[str], list[int]],
           tokens: int) -> Iterator[list[int]]:
    """The first `tokens` tokens of each text. Texts that are shorter go on with the next ones, behind
    an empty line; what is left over at the end is dropped."""
    waiting = ""
    for text in texts:
        waiting += ("\n\n" if waiting else "") + text
        ids = tokens_of(waiting)
        if len(ids) >= tokens:
            yield ids[:tokens]
            waiting = ""
