"""What is measured: links, profiles, prompts and repeats."""

import dataclasses
import functools
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
KVSERVE = ROOT / "build" / "release" / "bin" / "kvserve"
PROMPTS = ROOT / "data" / "prompts" / "prompts.jsonl"
LOGS = ROOT / "build" / "log"
OUT = ROOT / "out"

CALIBRATED = "calibrated"
PROFILES = [
    "none",
    "lossless",
    "hadamard|uniform:k_levels=32,v_levels=16|rans",
    "hadamard|uniform:k_levels=16,v_levels=8|rans",
    "hadamard|uniform:k_levels=8,v_levels=5|rans",
    CALIBRATED,
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


def artefact(model: Path) -> Path:
    """What `./dev` calibrated for this model, on texts behind all that are prompts here."""
    return model.with_name(model.name.removesuffix("-f16.gguf") + ".calib")


def policy(profile: str) -> str:
    """The policy's name in the results."""
    return profile if profile in ("none", "lossless") else f"static:{profile}"


def link_name(mbps: float) -> str:
    return f"{mbps:g} Mbit/s" if mbps else "unshaped"


@functools.cache  # the library calls it for as long as the process lives
def silence():
    import llama_cpp
    return llama_cpp.llama_log_callback(lambda *_: None)


class Tokenizer:
    """The model's own, through the libllama that carries the engine; loads no weights."""

    def __init__(self, model: Path):
        import llama_cpp
        self.api = llama_cpp
        llama_cpp.llama_log_set(silence(), None)
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        self.model = llama_cpp.llama_model_load_from_file(str(model).encode(), parameters)
        if not self.model:
            sys.exit(f"{model} cannot be read as a model")
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)

    def tokens(self, text: str) -> list[int]:
        data = text.encode()
        room = len(data) + 2
        ids = (self.api.llama_token * room)()
        count = self.api.llama_tokenize(self.vocabulary, data, len(data), ids, room, True, False)
        return list(ids[:max(count, 0)])

    def close(self) -> None:
        self.api.llama_model_free(self.model)


def prompt_tokens(model: Path, tokens: int = PROMPT_TOKENS) -> list[list[int]]:
    """The first `tokens` token ids of each shipped prompt."""
    tokenizer = Tokenizer(model)
    texts = [json.loads(line)["text"] for line in PROMPTS.read_text().splitlines()]
    prompts = [tokenizer.tokens(text)[:tokens] for text in texts]
    tokenizer.close()
    return [prompt for prompt in prompts if len(prompt) == tokens]
