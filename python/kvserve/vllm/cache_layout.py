"""What the connector must know of an engine's KV cache, or why it cannot serve it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    MLAAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Elements that KVServe knows, by torch's name. 8-bit floats are moved without loss.
_DTYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e5m2: "float8_e5m2",
}
# --kv-cache-dtype of caches that vLLM registers as bytes and that hold nothing but elements. Others
# (fp8_per_token_head, ...) keep scales between them.
_BYTE_CACHES = {"fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}


class UnsupportedCacheError(ValueError):
    """This model's or engine's KV cache cannot be transferred; the message says why."""


@dataclass(frozen=True)
class LayerShape:
    """One layer on this rank."""

    name: str
    kv_heads: int
    head_dim: int
    window_tokens: int  # how many of the last tokens the engine keeps; 0: all


@dataclass(frozen=True)
class CacheDescription:
    """The cache of one rank. `tensors` are the engine's own, [layer] in the model's order."""

    tensors: list[torch.Tensor]
    layers: list[LayerShape]
    layer_index: dict[str, int]
    dtype: str
    layout: str  # a name that kvserve.PagedCache knows
    block_tokens: int
    facts: dict[str, str]  # what must be equal on both engines, for messages
    fingerprint: bytes  # 16 bytes of the facts; engines with another are refused


def lossless_only(kv_cache_dtype: str) -> str:
    """A reason code when lossy profiles make no sense for a cache of this dtype, else ""."""
    return "8_bit_cache" if kv_cache_dtype.startswith("fp8") else ""


def layer_specs(config: KVCacheConfig) -> dict[str, AttentionSpec]:
    """The spec of every layer, in the model's order. UnsupportedCacheError names the first layer
    that is not plain attention, and what it is."""
    specs: dict[str, AttentionSpec] = {}
    for group in config.kv_cache_groups:
        spec = group.kv_cache_spec
        for name in group.layer_names:
            one = spec.kv_cache_specs[name] if isinstance(spec, UniformTypeKVCacheSpecs) else spec
            specs[name] = one
    if len(config.kv_cache_groups) > 1:
        raise UnsupportedCacheError(
            "this model's cache has several groups of blocks (hybrid KV cache manager); start with "
            "--disable-hybrid-kv-cache-manager, which keeps all tokens of window layers")
    for name, spec in specs.items():
        if isinstance(spec, MLAAttentionSpec):
            raise UnsupportedCacheError(f"{name} has a latent (MLA) cache, which is not supported")
        if not isinstance(spec, (FullAttentionSpec, SlidingWindowSpec)):
            raise UnsupportedCacheError(
                f"{name} keeps {type(spec).__name__.removesuffix('Spec')} state; only attention "
                "layers are supported")
        if spec.head_size != spec.head_size_v:
            raise UnsupportedCacheError(
                f"{name} has keys of {spec.head_size} and values of {spec.head_size_v} channels; "
                "they must be equal in this engine's blocks")
    return dict(sorted(specs.items(), key=lambda item: _order(item[0])))


def _order(layer_name: str) -> tuple[int, str]:
    from vllm.model_executor.models.utils import extract_layer_index

    return extract_layer_index(layer_name), layer_name


def window_cost(vllm_config: VllmConfig, config: KVCacheConfig) -> str:
    """For the log at start: what it costs that window layers keep all tokens, as they do beside
    full attention without the hybrid KV cache manager; "" when nothing."""
    specs = list(layer_specs(config).values())
    windows = [spec for spec in specs
               if isinstance(spec, FullAttentionSpec) and spec.sliding_window]
    if not windows:
        return ""
    # Layers of one shape have one spec, which says that some of them are windows, not which.
    kinds = getattr(vllm_config.model_config.hf_text_config, "layer_types", None) or []
    count = kinds.count("sliding_attention") if len(kinds) == len(specs) else 0
    per_token = sum(spec.page_size_bytes / spec.block_size for spec in windows[:count or None])
    up_to = "" if count else "up to "
    return (f"{up_to}{count or len(windows)} sliding-window layers keep and send all tokens, not "
            "only their window, since the connector does not support the hybrid KV cache manager: "
            f"per token beyond the window {up_to}{per_token:.0f} bytes more of KV cache on each "
            "rank, and as many on the wire before compression")


def _window_tokens(spec: AttentionSpec) -> int:
    if not isinstance(spec, SlidingWindowSpec):
        return 0
    return max(1, spec.sliding_window - 1 + spec.extra_retained_tokens)


def describe_cache(vllm_config: VllmConfig, config: KVCacheConfig,
                   tensors: Mapping[str, torch.Tensor], model_id: str) -> CacheDescription:
    """Checks everything that a transfer relies on. UnsupportedCacheError otherwise."""
    specs = layer_specs(config)
    missing = [name for name in specs if name not in tensors]
    if missing:
        raise UnsupportedCacheError(f"the engine registered no cache for {missing[0]}")
    first = tensors[next(iter(specs))]
    dtype = _dtype_name(first, vllm_config.cache_config.cache_dtype)
    block_tokens = next(iter(specs.values())).block_size
    if first.device.type != "cpu":
        raise UnsupportedCacheError(
            f"the cache is on {first.device.type}; this release transfers caches in host memory")
    layers = [LayerShape(name, spec.num_kv_heads, spec.head_size, _window_tokens(spec))
              for name, spec in specs.items()]
    for shape in layers:
        tensor = tensors[shape.name]
        expected = (tensor.shape[0], shape.kv_heads, block_tokens, 2 * shape.head_dim)
        if tuple(tensor.shape) != expected or not tensor.is_contiguous():
            raise UnsupportedCacheError(
                f"the cache of {shape.name} has shape {tuple(tensor.shape)} and strides "
                f"{tensor.stride()}; contiguous {expected} was expected")
        if tensor.dtype != first.dtype:
            raise UnsupportedCacheError(f"the cache of {shape.name} is {tensor.dtype}, the first "
                                        f"layer's {first.dtype}")
    facts = model_facts(vllm_config, dtype, model_id, list(specs))
    for kv_heads, head_dim in sorted({(shape.kv_heads, shape.head_dim) for shape in layers}):
        probe_cpu_layout(kv_heads, head_dim, block_tokens, vllm_config, getattr(torch, dtype))
    return CacheDescription(
        tensors=[tensors[shape.name] for shape in layers], layers=layers,
        layer_index={shape.name: index for index, shape in enumerate(layers)}, dtype=dtype,
        layout="vllm_cpu", block_tokens=block_tokens, facts=facts,
        fingerprint=fingerprint(facts))


def _dtype_name(tensor: torch.Tensor, cache_dtype: str) -> str:
    if tensor.dtype in _DTYPES:
        return _DTYPES[tensor.dtype]
    if tensor.dtype == torch.uint8 and cache_dtype in _BYTE_CACHES:
        return _BYTE_CACHES[cache_dtype]
    raise UnsupportedCacheError(
        f"a KV cache of {tensor.dtype} (--kv-cache-dtype {cache_dtype}) is not supported")


def probe_cpu_layout(kv_heads: int, head_dim: int, block_tokens: int, vllm_config: VllmConfig,
                     dtype: torch.dtype) -> None:
    """Writes known keys and values through the engine's own kernel into a scratch block and checks
    that they lie where the "vllm_cpu" layout says: the order inside a block depends on the
    processor's instruction set. UnsupportedCacheError when they do not."""
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    cache_dtype = vllm_config.cache_config.cache_dtype
    model_dtype = vllm_config.model_config.dtype
    isa = _get_attn_isa(model_dtype, block_tokens, head_dim, cache_dtype)
    stored = torch.uint8 if dtype.itemsize == 1 else dtype
    cache = torch.zeros((1, kv_heads, 2 * block_tokens, head_dim), dtype=stored)
    written = [_exact_values((block_tokens, kv_heads, head_dim), seed).to(model_dtype)
               for seed in (1, 2)]
    ops.cpu_attn_reshape_and_cache(*written, *cache.chunk(2, dim=2), torch.arange(block_tokens),
                                   isa, kv_cache_dtype=cache_dtype)
    flat = cache.view(kv_heads, 2, block_tokens * head_dim)
    found = (flat[:, 0].reshape(kv_heads, head_dim, block_tokens).permute(2, 0, 1),
             flat[:, 1].reshape(kv_heads, block_tokens, head_dim).permute(1, 0, 2))
    for there, was in zip(found, written):
        if not torch.equal(there, was.to(dtype).view(stored)):
            raise UnsupportedCacheError(
                f"this processor's attention kernel ({isa}) keeps blocks in an order that is not "
                "supported")


def _exact_values(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Random values that every element type of _DTYPES holds exactly: +-{1, 1.5} * 2^(-3..3)."""
    draw = torch.randint(0, 28, shape, generator=torch.Generator().manual_seed(seed))
    return (1 - 2.0 * (draw % 2)) * (1 + 0.5 * (draw // 2 % 2)) * 2.0 ** (draw // 4 - 3)


def model_facts(vllm_config: VllmConfig, dtype: str, model_id: str,
                layer_names: list[str]) -> dict[str, str]:
    """What is equal on two engines whose KV means the same, by name: as text where it is short,
    else as a digest. The operator vouches for the weights (model_id)."""
    text = vllm_config.model_config.hf_text_config.to_dict()
    volatile = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache")
    config = {key: value for key, value in text.items() if key not in volatile}
    return {
        "KV dtype": dtype,
        "model_id": model_id,
        "revision": str(vllm_config.model_config.revision),
        "quantization": str(vllm_config.model_config.quantization),
        "layers": f"{len(layer_names)} ({_digest(layer_names)})",
        "KV scales": _digest(_scales(vllm_config, layer_names))
        if dtype.startswith("float8") else "none",
        "config.json": _digest(config),
    }


def fact_that_differs(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The first fact in which the prefill engine and this one differ, in words; "" when none."""
    for name, own in ours.items():
        if theirs.get(name) != own:
            return (f"the engines differ in {name}: {theirs.get(name)!r:.200} on the prefill "
                    f"engine, {own!r:.200} here, where its KV would mean something else")
    return ""


def fingerprint(facts: Mapping[str, str]) -> bytes:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()[:16]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _scales(vllm_config: VllmConfig, layer_names: list[str]) -> list[tuple[float, float]]:
    """Static scales of an 8-bit cache: its bytes mean nothing without them."""
    if getattr(vllm_config.cache_config, "calculate_kv_scales", False):
        raise UnsupportedCacheError(
            "--calculate-kv-scales gives every engine scales of its own, under which the same "
            "bytes mean different values; use static scales")
    modules = vllm_config.compilation_config.static_forward_context
    return [(float(modules[name]._k_scale_float), float(modules[name]._v_scale_float))
            for name in layer_names if name in modules]
