"""kvserve.sensitivity on tiny models with random weights; skipped where transformers is missing."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from kvserve.sensitivity.texts import pieces, plain_text, read_texts

HAVE_TRANSFORMERS = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
if HAVE_TRANSFORMERS:
    import torch
    from kvserve.sensitivity import fisher
    from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM,
                              Qwen3Config, Qwen3ForCausalLM)

SHAPE = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "max_position_embeddings": 128, "initializer_range": 0.4}
CONTEXT, SCORED = 48, 6


class Texts(unittest.TestCase):
    def test_records_as_one_text(self):
        self.assertEqual(plain_text({"task": "lm", "text": "a b"}), "a b")
        self.assertEqual(plain_text({"context": "c", "question": "q?", "answers": ["x", "y"]}),
                         "c\n\nq?\nx")
        self.assertEqual(plain_text({"question": "q?", "answers": ["7"], "solution": "3 + 4 = 7"}),
                         "q?\n3 + 4 = 7")
        self.assertEqual(plain_text({"context": "c", "qas": [{"question": "q", "answers": ["a"]},
                                                             {"question": "r", "answers": ["b"]}]}),
                         "c\n\nq\na\n\nr\nb")

    def test_files_are_read_as_they_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            records, plain = Path(folder, "a.jsonl"), Path(folder, "b.txt")
            records.write_text(json.dumps({"text": "one"}) + "\n\n" + json.dumps({"text": "two"}))
            plain.write_text("three\nfour")
            self.assertEqual(list(read_texts([records, plain])), ["one", "two", "three\nfour"])

    def test_short_texts_are_joined(self):
        found = list(pieces(["aaaaa", "bb", "ccc", "dddd", "e"], lambda text: list(text), 5))
        self.assertEqual(["".join(piece) for piece in found], ["aaaaa", "bb\n\nc", "dddd\n"])


@unittest.skipUnless(HAVE_TRANSFORMERS, "transformers is not installed")
class Gradients(unittest.TestCase):
    def models(self):
        yield LlamaForCausalLM(LlamaConfig(**SHAPE))
        yield Qwen3ForCausalLM(Qwen3Config(**SHAPE))
        yield Gemma3ForCausalLM(Gemma3TextConfig(
            **SHAPE, sliding_window=24, query_pre_attn_scalar=8,
            layer_types=["sliding_attention", "full_attention"]))

    def setUp(self):
        torch.manual_seed(3)
        self.ids = torch.randint(0, 40, (CONTEXT + SCORED,))

    def context(self, model):
        return fisher.prefill(model, self.ids[:CONTEXT])

    def log_likelihoods(self, model, change=None):
        """Behind the context, of which `change` may alter keys and values first."""
        context = self.context(model)
        with torch.no_grad():
            if change:
                change(context)
            out = model(self.ids[None, CONTEXT:], past_key_values=context.cache, use_cache=True)
        return out.logits[0].double().log_softmax(-1)

    def test_window_layers_keep_their_last_tokens(self):
        *_, gemma = self.models()
        context = self.context(gemma.eval())
        self.assertEqual([key.shape[2] for key in context.keys], [23, CONTEXT])
        self.assertEqual(fisher.Fisher._counted(context.keys[1], CONTEXT), slice(4, 16))

    def test_undone_rotation_is_the_key_before_it(self):
        """By theta alone: channel pairs (i, i + 4) turn by position * theta^(-i / 4)."""
        model = next(self.models()).eval()
        seen = []
        hook = model.model.layers[1].self_attn.k_proj.register_forward_hook(
            lambda module, args, out: seen.append(out.detach()))
        context = self.context(model)
        hook.remove()
        before = seen[0].view(1, CONTEXT, 2, 8).transpose(1, 2)
        undone = context.rotations[1].undo(context.keys[1].detach())
        self.assertLess((undone - before).abs().max().item(), 1e-4)
        self.assertGreater((context.keys[1].detach() - before).abs().max().item(), 0.1)
        self.assertEqual(context.rotations[1].style(8), "halves")

    def test_gradients_are_those_of_finite_differences(self):
        for model in self.models():
            model = model.eval().requires_grad_(False)
            with self.subTest(model=type(model).__name__):
                context = self.context(model)
                generator = torch.Generator().manual_seed(1)
                keys, values = next(fisher.sampled_gradients(model, context, self.ids[CONTEXT:], 1,
                                                             generator))
                with torch.no_grad():
                    logits = self.log_likelihoods(model)
                generator.manual_seed(1)
                drawn = torch.multinomial(logits.float().exp(), 1, generator=generator)
                for layer in range(2):
                    direction = torch.randn(context.values[layer].shape)

                    def move(changed, sign, tensors, along):
                        getattr(changed, tensors)[layer].add_(along, alpha=sign * 1e-3)

                    turned = context.rotations[layer]
                    forward = fisher.Rotation(turned.apply, turned.cos, -turned.sin)
                    for tensors, found, along in (("values", values, direction),
                                                  ("keys", keys, forward.undo(direction))):
                        up, down = (self.log_likelihoods(
                            model, lambda changed: move(changed, sign, tensors, along))
                            .gather(1, drawn).sum() for sign in (1, -1))
                        expected = ((up - down) / 2e-3).item()
                        self.assertAlmostEqual((found[layer] * direction).sum().item(), expected,
                                               delta=0.02 * abs(expected) + 0.02)

    def test_matrices_predict_the_divergence(self):
        model = next(self.models()).eval().requires_grad_(False)
        counted = fisher.Fisher(model, samples=400)
        counted.add(self.ids, CONTEXT)
        matrices = counted.matrices()
        self.assertEqual(set(matrices), {"K.0", "V.0", "K.1", "V.1"})
        reference = self.log_likelihoods(model)
        rows = CONTEXT - fisher.SKIPPED_FIRST - fisher.SKIPPED_LAST
        for layer in range(2):
            matrix = matrices[f"V.{layer}"].double()
            self.assertEqual(matrix.shape, (16, 16))
            self.assertTrue(torch.equal(matrix, matrix.T))
            size, total = 0.02, 0.0
            for _ in range(24):
                error = size * torch.randn(rows, 2, 8)

                def move(changed):
                    changed.values[layer][0, :, fisher.SKIPPED_FIRST:-fisher.SKIPPED_LAST] += \
                        error.transpose(0, 1)

                moved = self.log_likelihoods(model, move)
                total += (reference.exp() * (reference - moved)).sum(-1).mean().item() / 24
            predicted = 0.5 * rows * size ** 2 * matrix.trace().item()
            self.assertAlmostEqual(total / predicted, 1, delta=0.35)

    def test_command_writes_what_the_reader_wants(self):
        from safetensors import safe_open
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast
        with tempfile.TemporaryDirectory() as folder:
            next(self.models()).save_pretrained(folder)
            words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(40)}, unk_token="w0"))
            words.pre_tokenizer = pre_tokenizers.Whitespace()
            PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
            data, output = Path(folder, "texts.jsonl"), Path(folder, "out.safetensors")
            data.write_text("\n".join(json.dumps({"task": "lm", "text": " ".join(
                f"w{(i * k) % 40}" for i in range(60))}) for k in (3, 7, 11)))
            command = [sys.executable, "-B", "-m", "kvserve.sensitivity", "--model", folder, "--data",
                       data, "-o", output, "--limit", "2", "--samples", "2", "--threads", "1"]
            refused = subprocess.run(command, capture_output=True, text=True)
            self.assertIn("1920 tokens", refused.stderr)
            done = subprocess.run([*command, "--context-tokens", "48", "--scored-tokens", "6"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            with safe_open(output, "pt") as file:
                self.assertEqual(file.metadata() | {"model": ""}, {
                    "kvserve.sensitivity": "1", "rope_style": "halves", "context_tokens": "48",
                    "scored_tokens": "6", "texts": "2", "samples": "2", "model": "",
                    "source": "gradients, 2 texts of texts.jsonl"})
                self.assertEqual(file.get_tensor("K.1").shape, (16, 16))


if __name__ == "__main__":
    unittest.main()
