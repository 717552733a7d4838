"""A Hugging Face causal LM whose attention reads a prompt's KV through a mask per layer and head."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from sparse.scores import QueryStatistics, rotation

Tensors = list[torch.Tensor]


@dataclass
class Prompt:
    """Queries, keys and values of a prompt after RoPE, a tensor per layer."""

    tokens: int
    queries: Tensors = field(default_factory=list)
    keys: Tensors = field(default_factory=list)
    values: Tensors = field(default_factory=list)


class Model:
    """Not for several threads: the attention function reads what the call in progress needs."""

    def __init__(self, model: PreTrainedModel, tokenizer=None):
        AttentionInterface.register("kvserve-sparse", self._attend)
        model.set_attn_implementation("kvserve-sparse")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.theta = float(model.config.rope_parameters["rope_theta"])
        self._prompt: Prompt | None = None
        self._kept: torch.Tensor | None = None  # None: the prompt itself is computed

    @classmethod
    def load(cls, folder: Path) -> "Model":
        return cls(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
                   AutoTokenizer.from_pretrained(folder))

    def tokens_of(self, text: str) -> torch.Tensor:
        return torch.tensor(self.tokenizer(text).input_ids)

    def prefill(self, ids: torch.Tensor) -> Prompt:
        self._prompt, self._kept = Prompt(len(ids)), None
        self.model.model(ids[None], use_cache=False)
        return self._prompt

    def log_probabilities(self, prompt: Prompt, kept: torch.Tensor,
                          ids: torch.Tensor) -> torch.Tensor:
        """[token, vocabulary] after each of `ids`, which follow the prompt. Only its tokens in
        `kept`, [layer, kv_head, token], are there to attend to, at the positions they had."""
        self._prompt, self._kept = prompt, kept
        positions = torch.arange(prompt.tokens, prompt.tokens + len(ids))
        logits = self.model(ids[None], position_ids=positions[None], use_cache=False).logits
        return logits[0].log_softmax(-1)

    def query_statistics(self, prompts: list[Prompt]) -> list[QueryStatistics]:
        """Per layer, of the queries before RoPE, all but those of the first tokens."""
        statistics = []
        for layer in range(len(prompts[0].queries)):
            unrotated = []
            for prompt in prompts:
                queries = prompt.queries[layer]
                turn = rotation(torch.arange(prompt.tokens), queries.shape[-1], self.theta)
                unrotated.append(torch.einsum("tij,hti->htj", turn, queries)[:, 1:])
            rows = torch.cat(unrotated, 1)
            mean = rows.mean(1)
            centred = rows - mean[:, None]
            statistics.append(QueryStatistics(
                mean, centred.transpose(1, 2) @ centred / rows.shape[1]))
        return statistics

    def _attend(self, module, query, key, value, _mask, scaling, **_):
        """[1, head, token, dim] of new tokens; causal among them."""
        attention = torch.nn.functional.scaled_dot_product_attention
        group = query.shape[1] // key.shape[1]
        if self._kept is None:
            self._prompt.queries.append(query[0])
            self._prompt.keys.append(key[0])
            self._prompt.values.append(value[0])
            out = attention(query, key.repeat_interleave(group, 1),
                            value.repeat_interleave(group, 1), is_causal=True, scale=scaling)
            return out.transpose(1, 2), None
        layer, new = module.layer_idx, query.shape[2]
        key = torch.cat([self._prompt.keys[layer][None], key], 2).repeat_interleave(group, 1)
        value = torch.cat([self._prompt.values[layer][None], value], 2).repeat_interleave(group, 1)
        before = self._kept[layer].repeat_interleave(group, 0)[:, None].expand(-1, new, -1)
        among = torch.ones(new, new, dtype=torch.bool).tril().expand(len(before), -1, -1)
        out = attention(query, key, value, attn_mask=torch.cat([before, among], 2)[None],
                        scale=scaling)
        return out.transpose(1, 2), None
