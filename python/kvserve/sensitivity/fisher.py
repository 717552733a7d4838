"""Fisher information of a model's next-token distribution in the keys and values of its context.

With y drawn from the model's own distribution at each scored token and g the gradient of the sum of
log p(y) in the key or value of a context token, E[g g^T] is the Hessian of the KL divergence: an
error e of that key costs 1/2 e^T E[g g^T] e nats. Averaged over tokens and divided by the number of
scored tokens, it is the matrix that is written, one per layer for keys and one for values.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel

# Attention sinks are far more sensitive than all others, the last tokens somewhat.
SKIPPED_FIRST = 4
SKIPPED_LAST = 32


class UnsupportedModel(Exception):
    """This form of attention is not understood."""


@dataclass
class Rotation:
    """RoPE of one layer at some positions, undone by the model's own function with the sine
    negated: a rotation's transpose is its inverse."""

    apply: object  # of the model's module: (q, k, cos, sin) -> (q, k)
    cos: torch.Tensor  # [1, token, dim]
    sin: torch.Tensor

    def undo(self, rows: torch.Tensor) -> torch.Tensor:
        """`rows` [1, head, token, dim] of the last tokens among the positions."""
        cos, sin = self.cos[:, -rows.shape[2]:], self.sin[:, -rows.shape[2]:]
        length = (cos.square() + sin.square()).sqrt()  # other than 1 where attention is scaled here
        return self.apply(rows, rows, cos / length, -sin / length)[1]

    def style(self, dim: int) -> str:
        """Which channels it pairs; the first channel a quarter turn on shows it."""
        unit = torch.eye(dim)[None, None, :1]
        turned = self.apply(unit, unit, torch.zeros(1, 1, self.cos.shape[-1]),
                            torch.ones(1, 1, self.sin.shape[-1]))[1][0, 0, 0]
        pair = int(turned.abs().argmax())
        if self.cos.shape[-1] == dim and pair == dim // 2:
            return "halves"
        if self.cos.shape[-1] == dim and pair == 1:
            return "interleaved"
        raise UnsupportedModel("RoPE over a part of the head, or of another kind")


@dataclass
class Context:
    """A prefix's KV as leaves of the graph, [1, head, token, dim] per layer, of the tokens that the
    layer still holds."""

    cache: DynamicCache
    rotations: list[Rotation]
    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)


def attention_layers(model: PreTrainedModel) -> list[torch.nn.Module]:
    found = [module for name, module in model.named_modules() if name.endswith(".self_attn")]
    if len(found) != model.config.get_text_config().num_hidden_layers:
        raise UnsupportedModel(f"{type(model).__name__} has {len(found)} modules self_attn")
    return found


@torch.no_grad()
def prefill(model: PreTrainedModel, ids: torch.Tensor) -> Context:
    rotations: dict[int, Rotation] = {}

    def keep(module, args, kwargs):
        apply = getattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb", None)
        embeddings = kwargs.get("position_embeddings", args[1] if len(args) > 1 else None)
        if apply is None or not isinstance(embeddings, tuple):
            raise UnsupportedModel(f"{type(module).__name__} shows no rotary position embedding")
        rotations[module.layer_idx] = Rotation(apply, *embeddings)

    hooks = [layer.register_forward_pre_hook(keep, with_kwargs=True)
             for layer in attention_layers(model)]
    cache = DynamicCache(config=model.config)
    try:
        model(ids[None], past_key_values=cache, use_cache=True, logits_to_keep=1)
    finally:
        for hook in hooks:
            hook.remove()
    context = Context(cache, [rotations[i] for i in sorted(rotations)])
    if len(cache.layers) != len(context.rotations):
        raise UnsupportedModel("layers that share their KV")
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
        context.keys.append(layer.keys.requires_grad_())
        context.values.append(layer.values.requires_grad_())
    return context


def sampled_gradients(model: PreTrainedModel, context: Context, following: torch.Tensor,
                      samples: int, generator: torch.Generator) -> Iterator[tuple[list, list]]:
    """Per sample the gradients in keys before RoPE and in values, [1, head, token, dim] per layer."""
    logits = model(following[None], past_key_values=context.cache, use_cache=True).logits
    likelihoods = logits[0].float().log_softmax(-1)
    leaves = context.keys + context.values
    layers = len(context.keys)
    for sample in range(samples):
        drawn = torch.multinomial(likelihoods.detach().exp(), 1, generator=generator)
        found = torch.autograd.grad(likelihoods.gather(1, drawn).sum(), leaves,
                                    retain_graph=sample + 1 < samples)
        keys = [rotation.undo(key) for rotation, key in zip(context.rotations, found[:layers])]
        yield keys, list(found[layers:])


class Fisher:
    """Sums over texts; keys and values are [column, column] per layer, columns head * dim."""

    def __init__(self, model: PreTrainedModel, samples: int = 4, seed: int = 0):
        self.model = model.eval().requires_grad_(False)
        self.samples = samples
        self.generator = torch.Generator().manual_seed(seed)
        self.rope_style = ""
        self.texts = 0
        self.scored_tokens = 0
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.rows: list[int] = []  # per layer: gradients summed, of one sample

    def add(self, ids: torch.Tensor, context_tokens: int) -> None:
        """One text; what follows its first `context_tokens` tokens is scored."""
        context = prefill(self.model, ids[:context_tokens])
        self._start(context)
        following = ids[context_tokens:]
        counted = [self._counted(key, context_tokens) for key in context.keys]
        for keys, values in sampled_gradients(self.model, context, following, self.samples,
                                              self.generator):
            for sums, gradients in ((self.keys, keys), (self.values, values)):
                for layer, gradient in enumerate(gradients):
                    rows = gradient[0, :, counted[layer]].transpose(0, 1).flatten(1).double()
                    sums[layer] += rows.T @ rows
        for layer, rows in enumerate(counted):
            self.rows[layer] += rows.stop - rows.start
        self.texts += 1
        self.scored_tokens = len(following)

    def matrices(self) -> dict[str, torch.Tensor]:
        """Per position of the context and per scored token."""
        found = {}
        for name, sums in (("K", self.keys), ("V", self.values)):
            for layer, total in enumerate(sums):
                scale = self.rows[layer] * self.samples * self.scored_tokens
                found[f"{name}.{layer}"] = (total / scale).float().contiguous()
        return found

    def _start(self, context: Context) -> None:
        styles = {rotation.style(key.shape[-1])
                  for rotation, key in zip(context.rotations, context.keys)}
        if len(styles) > 1:
            raise UnsupportedModel("layers that pair channels differently")
        self.rope_style = styles.pop()
        if self.keys:
            return
        for sums, tensors in ((self.keys, context.keys), (self.values, context.values)):
            for tensor in tensors:
                columns = tensor.shape[1] * tensor.shape[3]
                sums.append(torch.zeros(columns, columns, dtype=torch.float64))
        self.rows = [0] * len(self.keys)

    @staticmethod
    def _counted(key: torch.Tensor, context_tokens: int) -> slice:
        """Rows of the tokens that count, of those that the layer holds."""
        first = context_tokens - key.shape[2]
        begin = max(SKIPPED_FIRST - first, 0)
        return slice(begin, max(key.shape[2] - SKIPPED_LAST, begin))
