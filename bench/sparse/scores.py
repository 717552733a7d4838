"""How much the tokens of a prompt matter, per layer and KV head, and which of them to keep.

Shapes: queries [head, token, dim] and keys, values [kv_head, token, dim] of one layer, after RoPE;
scores [layer, kv_head, token]. Query heads of one KV head are neighbours.
"""

import math
from typing import NamedTuple

import torch

OBSERVED = 32  # queries that SnapKV ranks by
POOL = 7
HORIZON = 384  # tokens ahead over which expected attention averages
POSITIONS = 32


class QueryStatistics(NamedTuple):
    """Of one layer before RoPE: mean [head, dim], covariance [head, dim, dim]."""

    mean: torch.Tensor
    covariance: torch.Tensor


def rotation(positions: torch.Tensor, dim: int, theta: float) -> torch.Tensor:
    """[position, dim, dim] of RoPE that pairs channels i and i + dim / 2."""
    frequency = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = positions.double()[:, None] * frequency
    cosine, sine = torch.diag_embed(angle.cos()), torch.diag_embed(angle.sin())
    return torch.cat([torch.cat([cosine, -sine], 2), torch.cat([sine, cosine], 2)], 1).float()


def mass(queries: torch.Tensor, keys: torch.Tensor, first: int = 0) -> torch.Tensor:
    """[kv_head, token]: causal attention of the queries from token `first` on, summed over them and
    over the heads of a group."""
    heads, tokens, dim = queries.shape
    group = heads // len(keys)
    total = torch.zeros(len(keys), tokens)
    for begin in range(first, tokens, 128):
        end = min(begin + 128, tokens)
        block = queries[:, begin:end].reshape(len(keys), group * (end - begin), dim)
        logits = (block @ keys[:, :end].transpose(1, 2) / math.sqrt(dim)).view(
            len(keys), group, end - begin, end)
        later = torch.arange(end) > torch.arange(begin, end)[:, None]
        attention = logits.masked_fill(later, -math.inf).softmax(-1)
        total[:, :end] += attention.sum((1, 2))
    return total


def pooled_mass(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """SnapKV: mass of the last queries, each earlier token with the largest of its neighbours'."""
    first = max(0, queries.shape[1] - OBSERVED)
    found = mass(queries, keys, first)
    if first:
        found[:, :first] = torch.nn.functional.max_pool1d(
            found[:, None, :first], POOL, stride=1, padding=POOL // 2)[:, 0]
    return found


def expected(statistics: QueryStatistics, keys: torch.Tensor, values: torch.Tensor,
             theta: float) -> torch.Tensor:
    """[kv_head, token]: expected attention of queries after the last token, times |v|."""
    heads, dim = statistics.mean.shape
    end = keys.shape[1]
    turn = rotation(torch.linspace(end, end + HORIZON, POSITIONS), dim, theta)
    mean = torch.einsum("pij,hj->hi", turn, statistics.mean) / POSITIONS
    spread = torch.einsum("pij,hjk,plk->hil", turn, statistics.covariance, turn) / POSITIONS
    shared = keys.repeat_interleave(heads // len(keys), 0)
    logits = torch.einsum("htd,hd->ht", shared, mean) / math.sqrt(dim)
    logits += ((shared @ spread) * shared).sum(-1) / (2 * dim)
    by_head = logits.softmax(-1).view(len(keys), -1, end).sum(1)
    return by_head * values.norm(dim=-1)


def keep(scores: torch.Tensor, share: float, common: bool, sinks: int, recent: int) -> torch.Tensor:
    """Which tokens stay, [layer, kv_head, token]: ceil(share * tokens) of them, sinks and recent
    ones first, and all of those even if they are more. Each head has its own choice, or all have
    that of the scores' sum, to which every layer contributes one unit."""
    tokens = scores.shape[-1]
    if common:
        by_layer = scores.sum(1)
        scores = (by_layer / by_layer.sum(-1, keepdim=True)).sum(0).expand_as(scores)
    scores = scores.clone()
    scores[..., :sinks] = math.inf
    scores[..., tokens - recent:] = math.inf
    count = min(tokens, max(math.ceil(share * tokens - 1e-9), sinks + recent))
    best = scores.topk(count, -1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)
