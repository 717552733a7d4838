"""What is measured: links, profiles, prompts and repeats."""

import dataclasses
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
KVSERVE = ROOT / "build" / "release" / "bin" / "kvserve"
PROMPTS = ROOT / "data" / "prompts" / "prompts.jsonl"
LOGS = ROOT / "build" / "log"
OUT = ROOT / "out"

PROFILES = [
    "none",
    "lossless",
    "hadamard|uniform:k_levels=32,v_levels=16|rans",
    "hadamard|uniform:k_levels=16,v_levels=8|rans",
    "hadamard|uniform:k_levels=8,v_levels=5|rans",
]
LINKS_MBPS = [0, 1000, 100, 20, 5]  # 0: unshaped
PAIRED_LINK_MBPS = 1000  # where none and the recommended profile are measured in interleaved pairs
PROMPT_TOKENS = 1000
OUTPUT_TOKENS = 32
MODELS = {
    "smollm2-135m": ROOT / "build" / "models" / "smollm2-f16.gguf",
    "gemma-3-270m": ROOT / "build" / "models" / "gemma-3-270m-f16.gguf",
}


@dataclasses.dataclass
class Plan:
    models: dict[str, Path]
    repeats: dict[int, int]  # by link
    pairs: int
    evaluated_prompts: int


QUICK = Plan({"smollm2-135m": MODELS["smollm2-135m"]}, {0: 3, 1000: 2, 100: 3, 20: 2, 5: 1}, 10, 4)
FULL = Plan(MODELS, {0: 8, 1000: 5, 100: 8, 20: 6, 5: 3}, 20, 16)


def policy(profile: str) -> str:
    """The policy's name in the results."""
    return profile if profile in ("none", "lossless") else f"static:{profile}"


def link_name(mbps: float) -> str:
    return f"{mbps:g} Mbit/s" if mbps else "unshaped"


def prompt_tokens(model: Path, tokens: int = PROMPT_TOKENS) -> list[list[int]]:
    """The first `tokens` token ids of each shipped prompt."""
    from llama_cpp import Llama  # only its tokenizer: the venv has it, it carries the engine
    vocabulary = Llama(str(model), vocab_only=True, verbose=False)
    texts = [json.loads(line)["text"] for line in PROMPTS.read_text().splitlines()]
    prompts = [vocabulary.tokenize(text.encode())[:tokens] for text in texts]
    return [prompt for prompt in prompts if len(prompt) == tokens]
