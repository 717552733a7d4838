"""Prompts: articles of a data set of task `lm`, and passkeys hidden in them."""

import gzip
import json
import random
from pathlib import Path
from typing import NamedTuple

import torch


class Passkey(NamedTuple):
    prompt: torch.Tensor
    question: torch.Tensor
    answer: torch.Tensor


def read_texts(path: Path) -> list[str]:
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else \
        path.open(encoding="utf-8")
    with opened as lines:
        records = [json.loads(line) for line in lines]
    texts = [record["text"] for record in records if record.get("task") == "lm"]
    if not texts:
        raise SystemExit(f"{path}: no record of task lm")
    return texts


def passkey(body: torch.Tensor, tokens_of, context: int, number: int) -> Passkey:
    """A prompt of `context` tokens of `body` with a key somewhere in its middle nine tenths."""
    random_number = random.Random(number)
    key = str(random_number.randint(10000, 99999))
    needle = tokens_of(f"\n\nRemember the pass key. The pass key is {key}, that is {key}.\n\n")
    room = context - len(needle)
    start = random_number.randint(0, len(body) - room)
    text = body[start:start + room]
    at = int(room * (0.05 + 0.85 * random_number.random()))
    prompt = torch.cat([text[:at], needle, text[at:]])
    question = tokens_of("\n\nQuestion: What is the pass key in the text above?\n"
                         "Answer: The pass key is")
    return Passkey(prompt, question, tokens_of(f" {key}"))
