"""Prompts as token ids of exact lengths, from the shipped texts."""

import functools
import json

from demo import plan
from vllm_pd.servers import MODEL


@functools.cache
def texts() -> list[list[int]]:
    from tokenizers import Tokenizer  # comes with vLLM
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    lines = plan.PROMPTS.read_text().splitlines()
    return [tokenizer.encode(json.loads(line)["text"]).ids for line in lines]


def of_length(tokens: int, count: int) -> list[list[int]]:
    """`count` different prompts: stretches of the texts from their beginnings on."""
    found = []
    for start in range(0, 1 << 20, max(tokens, 97)):
        for text in texts():
            if len(text) >= start + tokens:
                found.append(text[start:start + tokens])
                if len(found) == count:
                    return found
        if all(len(text) < start + tokens for text in texts()):
            break
    raise ValueError(f"the texts hold only {len(found)} prompts of {tokens} tokens, not {count}")
