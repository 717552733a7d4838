"""python -m kvserve.sensitivity: a model's sensitivity to errors in its KV, to a file."""

import argparse
import itertools
import sys
import time
from pathlib import Path

try:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as missing:
    sys.exit(f"kvserve.sensitivity: {missing}; pip install 'kvserve[sensitivity]'")

from .fisher import SKIPPED_FIRST, SKIPPED_LAST, Fisher, UnsupportedModel
from .texts import pieces, read_texts


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kvserve.sensitivity",
        description="Learns from gradients how much errors in each key and value cost; the file is for "
                    "kvserve calibrate --sensitivity.")
    parser.add_argument("--model", type=Path, required=True, help="folder in Hugging Face form")
    parser.add_argument("--data", type=Path, required=True, action="append",
                        help="texts: .jsonl or .jsonl.gz records, or any other file as one text; may "
                             "be repeated. Short texts are joined")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write "
                        "(.safetensors)")
    parser.add_argument("--limit", type=int, default=16, help="texts at most; 0: all (16)")
    parser.add_argument("--context-tokens", type=int, default=1536,
                        help="tokens of each text whose KV is looked at (1536)")
    parser.add_argument("--scored-tokens", type=int, default=384,
                        help="tokens behind them that are scored (384)")
    parser.add_argument("--samples", type=int, default=4,
                        help="draws of the scored tokens per text (4)")
    parser.add_argument("--threads", type=int, default=0, help="0: as torch has it")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.context_tokens <= SKIPPED_FIRST + SKIPPED_LAST:
        parser.error(f"--context-tokens must be above {SKIPPED_FIRST + SKIPPED_LAST}")
    if options.scored_tokens < 1 or options.samples < 1:
        parser.error("--scored-tokens and --samples must be 1 or more")
    return options


def compute(options: argparse.Namespace) -> Fisher:
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    fisher = Fisher(model, options.samples, options.seed)
    texts = pieces(read_texts(options.data), lambda text: tokenizer(text).input_ids,
                   options.context_tokens + options.scored_tokens)
    began = time.monotonic()
    for ids in itertools.islice(texts, options.limit or None):
        fisher.add(torch.tensor(ids), options.context_tokens)
        print(f"text {fisher.texts}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if fisher.texts == 0:
        sys.exit("kvserve.sensitivity: the data have no "
                 f"{options.context_tokens + options.scored_tokens} tokens")
    return fisher


def main() -> None:
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        fisher = compute(options)
    except (OSError, ValueError, KeyError, UnsupportedModel) as error:
        sys.exit(f"kvserve.sensitivity: {error}")
    names = ", ".join(path.name for path in options.data)
    save_file(fisher.matrices(), options.output, metadata={
        "kvserve.sensitivity": "1", "rope_style": fisher.rope_style, "model": options.model.name,
        "context_tokens": str(options.context_tokens), "scored_tokens": str(fisher.scored_tokens),
        "texts": str(fisher.texts), "samples": str(options.samples),
        "source": f"gradients, {fisher.texts} texts of {names}"})


if __name__ == "__main__":
    main()
