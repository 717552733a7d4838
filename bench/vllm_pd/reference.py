"""The tokens of a single server, which every exact policy must give too; remembered in build/.

In float32: in bfloat16 even one server gives other greedy tokens for a prompt computed in one piece
than for the same prompt partly from its cache.
"""

import hashlib
import json
import math
from importlib import metadata
from pathlib import Path

from vllm_pd import prompts
from vllm_pd.cluster import Cluster
from vllm_pd.measure import unique_salt
from vllm_pd.servers import MODEL, ROOT

DTYPE = "float32"
OUTPUT_TOKENS = 16
# Around the block size of 128, its double, and prompts of several blocks.
LENGTHS = [1, 2, 127, 128, 129, 255, 256, 257, 1000, 1025]


def prompt_set(count: int = 100) -> list[list[int]]:
    """All lengths in turn."""
    per_length = -(-count // len(LENGTHS))
    by_length = [prompts.of_length(tokens, per_length) for tokens in LENGTHS]
    return [by_length[i % len(LENGTHS)][i // len(LENGTHS)] for i in range(count)]


def cache_file(kind: str, asked: list[list[int]]) -> Path:
    model = (MODEL / "model.safetensors").stat()
    key = json.dumps([metadata.version("vllm"), model.st_size, model.st_mtime_ns, DTYPE,
                      OUTPUT_TOKENS, asked])
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return ROOT / "build" / "vllm" / f"{kind}-{digest}.json"


def remembered(network, kind: str, asked: list[list[int]], ask) -> list:
    """What a single server answers to each of these prompts, asked by `ask(client, prompt)`."""
    cache = cache_file(kind, asked)
    if not cache.exists():
        with Cluster(network, None, DTYPE, name="reference") as cluster:
            answers = [ask(cluster.client, prompt) for prompt in asked]
        cache.parent.mkdir(parents=True, exist_ok=True)
        part = cache.with_suffix(".part")
        part.write_text(json.dumps(answers))
        part.rename(cache)
    return json.loads(cache.read_text())


def tokens(network, asked: list[list[int]]) -> list[list[int]]:
    def ask(client, prompt: list[int]) -> list[int]:
        return client.complete(prompt, OUTPUT_TOKENS, unique_salt()).tokens
    return remembered(network, "reference", asked, ask)


def distributions(network, asked: list[list[int]]) -> list[dict[str, float]]:
    """Log-probabilities of the likeliest next tokens of each prompt."""
    def ask(client, prompt: list[int]) -> dict[str, float]:
        return client.next_token(prompt, unique_salt())
    return remembered(network, "distribution", asked, ask)


def kl(wanted: dict[str, float], got: dict[str, float]) -> float:
    """Kullback-Leibler divergence over the likeliest tokens of `wanted`; one that is not among
    those of `got` counts as its least likely."""
    least = min(got.values())
    return sum(math.exp(p) * (p - got.get(token, least)) for token, p in wanted.items())
